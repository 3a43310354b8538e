"""Names for the tensors among the arguments of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from mha_lint.capture.walk import tensors_in


def parameter_names(subject: nn.Module | Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters of ``forward`` or of the function."""
    function = subject.forward if isinstance(subject, nn.Module) else subject
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in kinds)


def named_inputs(
    args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str]
) -> list[tuple[tuple[str, ...], torch.Tensor]]:
    """Return each distinct tensor among the arguments with all names that it goes by.

    ``module(x, x, memory=[m])`` gives ``(("query", "key"), x), (("memory[0]",), m)``.
    """
    found: dict[int, tuple[list[str], torch.Tensor]] = {}
    for place, value in enumerate(args):
        name = names[place] if place < len(names) else f"args[{place}]"
        for path, x in tensors_in(value, name):
            found.setdefault(id(x), ([], x))[0].append(path)
    for key, value in kwargs.items():
        for path, x in tensors_in(value, key):
            found.setdefault(id(x), ([], x))[0].append(path)
    return [(tuple(paths), x) for paths, x in found.values()]
