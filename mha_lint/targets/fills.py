"""Say a fill that torch refuses in attention's terms: a number that the type of the scores cannot hold."""

from __future__ import annotations

import ast
import re

import torch

from mha_lint.model.target import ShapeProblem
from mha_lint.targets.scene import Scene

_REFUSED = re.compile(r"value cannot be converted to type (?:at::|c10::)?(\w+) without overflow")
_TYPES = {"Half": torch.float16, "BFloat16": torch.bfloat16, "float": torch.float32}


def overflowing_fill(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """Return the fill that does not fit into the type of what it fills."""
    found = _REFUSED.search(message)
    kind = _TYPES.get(found[1]) if found is not None else None
    if found is None or kind is None:
        return None
    limits = torch.finfo(kind)
    too_large = [
        value
        for node in ast.walk(scene.node)
        if (value := scene.value(node)) is not None
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) > limits.max
    ]
    name = str(kind).removeprefix("torch.")
    fill = f"the fill {too_large[0]:.3g}" if too_large else "the fill"
    return ShapeProblem(
        "MHA305",
        f"{fill} does not fit into {name}, whose most negative number is {limits.min:g}",
        scene.span,
        "fill with torch.finfo(scores.dtype).min, or mask float32 scores",
        (f"{type(error).__name__}: {message.splitlines()[0]}",),
    )
