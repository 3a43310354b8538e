"""Build a model of transformers from its config, without reading weights."""

from __future__ import annotations

import contextlib
import copy
import re
from typing import Any, Literal

import torch
from torch import nn

from mha_lint.targets.pretrained.reading import model_class

EXPERTS = "batched_mm"
"""Works at any size, and without a loop over the experts that data choose."""

Device = Literal["cpu", "meta", "fake"]


def build(
    config: Any,
    *,
    device: Device = "cpu",
    attention: str | None = "eager",
    dtype: torch.dtype | None = torch.float32,
    seed: int = 0,
) -> nn.Module:
    """Return the model of `config` in eval mode, with random weights from `seed`.

    ``device``: "meta" (no storage), "fake" (parameters of a FakeTensorMode of its own) or "cpu".
    ``attention``: transformers' attn_implementation; None leaves the choice to the config.
    ``dtype``: None takes the config's own.
    """
    if dtype is None:
        dtype = getattr(config, "dtype", None) or torch.float32
    config = copy.deepcopy(config)
    found = model_class(config)
    if attention == "eager" and getattr(config, "_experts_implementation", "") is None:
        config._experts_implementation = EXPERTS
    with contextlib.ExitStack() as stack:
        if device == "meta":
            stack.enter_context(torch.device("meta"))
        if device == "fake":
            from torch._subclasses.fake_tensor import FakeTensorMode

            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        model = _made(found, config, attention, dtype)
    model.eval()
    assert isinstance(model, nn.Module)
    return model


def parameter_count(config: Any) -> int | None:
    """Return how many parameters the model has, None where it cannot be built without storage.

    Raises what the library raises, where that is for another reason: with storage it would too, and
    the model may be a large one.
    """
    try:
        model = build(config, device="meta")
    except (NotImplementedError, RuntimeError) as error:
        if not re.search(r"\bmeta\b", str(error), re.IGNORECASE):
            raise
        return None  # initialisation that reads values
    return sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())


def _made(found: Any, config: Any, attention: str | None, dtype: torch.dtype) -> Any:
    """Return the model with the attention asked for, where the class has that one."""
    options: dict[str, Any] = {"dtype": dtype}
    try:
        return found._from_config(config, attn_implementation=attention, **options)
    except ValueError as error:
        if attention is None or "attention" not in str(error):
            raise
    config._attn_implementation = None
    return found._from_config(config, **options)
