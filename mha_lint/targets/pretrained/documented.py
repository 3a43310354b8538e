"""Shapes of arguments as the docstring of a forward tells them, in numbers of the config."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mha_lint.targets.pretrained.needs import Needs

_SHAPE = re.compile(r"(\w+)\s+\(`([^`]*)`,? of shape `\(([^`]*)\)`")
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def shapes_of(forward: Any) -> dict[str, tuple[str, list[str]]]:
    """Return (type, axes) by argument, as the docstring of `forward` has them."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name, kind, axes in _SHAPE.findall(getattr(forward, "__doc__", None) or ""):
        found.setdefault(name, (kind, [a.strip() for a in axes.split(",") if a.strip()]))
    return found


def from_docs(name: str, kind: str, axes: list[str], needs: Needs) -> Callable[[], Tensor] | None:
    """Return what makes a tensor of the shape that is told, None where an axis is not known."""
    shape = [axis_size(one, needs) for one in axes]
    if any(n is None or not 0 < n <= 1 << 14 for n in shape):
        return None
    whole = tuple(n for n in shape if n is not None)
    if "Bool" in kind:
        return lambda: torch.ones(whole, dtype=torch.bool)
    if "Long" in kind or "Int" in kind or name.endswith(("ids", "mask")):
        fill = 1 if name.endswith("mask") else 0
        return lambda: torch.full(whole, fill, dtype=torch.long)
    return lambda: torch.randn(whole)


def axis_size(text: str, needs: Needs) -> int | None:
    """Return how long an axis is, as `text` tells it: an expression of names and integers."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, needs)
    except (SyntaxError, ArithmeticError):
        return None


def _value(node: ast.expr, needs: Needs) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return _named(name, needs)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            one, other = _value(left, needs), _value(right, needs)
            if one is None or other is None:
                return None
            return _OPERATORS[type(op)](one, other)
        case _:
            return None


def _named(name: str, needs: Needs) -> int | None:
    own = needs.get(name, f"n_{name}", f"num_{name}")
    if "batch" in name or name in ("num_images", "num_samples", "bsz"):
        return needs.batch
    if name in ("height", "image_height", "image_size"):
        return needs.image[0]
    if name in ("width", "image_width"):
        return needs.image[1]
    if name == "num_channels":
        return needs.channels
    if name == "patch_size":
        return needs.patch
    if name in ("num_patches", "total_patches", "num_image_tokens", "total_tokens"):
        return needs.batch * needs.side**2
    if name == "num_frames":
        return needs.frames
    if isinstance(own, int) and not isinstance(own, bool):
        return own
    if name in ("hidden_size", "embed_dim", "d_model"):
        return needs.width
    if name in ("feature_size", "feature_dim", "num_mel_bins", "num_mels"):
        return needs.mels
    if "feature" in name and name.endswith(("length", "len")):
        return needs.spectrum
    if name.endswith(("length", "len", "seq_len")):
        return needs.length
    return None
