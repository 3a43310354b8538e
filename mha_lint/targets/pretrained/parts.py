"""Parts of a model that can be called where the whole cannot: models of their own within it."""

from __future__ import annotations

from typing import Any

from torch import nn

from mha_lint.targets.pretrained.building import build
from mha_lint.targets.pretrained.leaves import leaves
from mha_lint.targets.pretrained.roles import Role

DEEPEST = 2
"""Dots in a part's path, at most."""


def callable_parts(config: Any) -> list[str]:
    """Return the paths of parts with a config and a forward of their own: those with heads first,
    of these the richest."""
    from transformers import PreTrainedModel

    try:
        model = build(config, device="meta")
    except Exception:  # initialisation that reads values
        return []
    found: list[tuple[bool, int, str]] = []
    kinds: set[type] = set()
    for path, module in model.named_modules():
        if not path or path.count(".") >= DEEPEST or not isinstance(module, PreTrainedModel):
            continue
        if type(module) in kinds or type(module).forward is nn.Module.forward:
            continue
        kinds.add(type(module))
        heads = any(x.role is Role.HEADS for x in leaves(module.config.to_dict()))
        found.append((not heads, -len({type(m) for m in module.modules()}), path))
    return [path for *_, path in sorted(found)]


def part_of(model: nn.Module, path: str) -> nn.Module:
    """Return the part of `model` at `path`, all of it for an empty one."""
    return model.get_submodule(path) if path else model
