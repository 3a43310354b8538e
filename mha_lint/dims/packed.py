"""The widths of one projection from the tensors that stand under its name.

A plain weight is (out, in). Adapters and packed (quantised) weights have other shapes, which are no
widths: what can be told from their companions is told, the rest is left open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from mha_lint.dims.data import Tensor

_INTEGERS = re.compile(r"u?int\d+|[UI]\d+|quint\S*|BOOL", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Projection:
    """One projection: how wide it is on both sides, as far as that is known.

    ``shown``: its tensor and shape, for sentences; ``rows``: its output; ``columns``: its input;
    ``split``: (heads, width) where the weight keeps heads on an axis of their own; ``bias``: the
    width of its bias; ``square``: how many numbers it holds, where only that is known; ``form``:
    "plain", "adapter" or the name of a packing; ``turned``: stored as (in, out).
    """

    role: str
    name: str
    shape: tuple[int, ...]
    rows: int | None
    columns: int | None
    bias: int | None = None
    split: tuple[int, int] | None = None
    numbers: int | None = None
    form: str = "plain"
    turned: bool = False

    @property
    def shown(self) -> str:
        """Return tensor and shape, or what stands for the shape of a packed weight."""
        if self.form == "plain" or self.rows is None or self.columns is None:
            return f"{self.name} {shape_text(self.shape)}"
        return f"{self.name} ({self.rows}, {self.columns}) by its {self.form} tensors"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as sentences show it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def projection(role: str, place: str, label: str, parts: Mapping[str, Tensor]) -> Projection | None:
    """Return the projection whose tensors are `parts`, by what follows the projection's name.

    `place`: the module that it stands in; `label`: its own name there. A width of 0 is none.
    """
    found = _projection(role, place, label, parts)
    if found is None or (found.split is not None and 0 in found.split):
        return None
    widths = (found.rows, found.columns, found.bias, found.numbers)
    if 0 not in widths:
        return found
    rows, columns, bias, numbers = (width or None for width in widths)
    return replace(found, rows=rows, columns=columns, bias=bias, numbers=numbers)


def _projection(
    role: str, place: str, label: str, parts: Mapping[str, Tensor]
) -> Projection | None:
    ends = {re.sub(r"^(base_layer|linear|conv|convolution)\.", "", k): t for k, t in parts.items()}
    bias = next(
        (t.shape[0] for k, t in ends.items() if k.endswith("bias") and len(t.shape) == 1), None
    )
    weight = next((t for k, t in ends.items() if re.fullmatch(r"(.*\.)?(weight|kernel)", k)
                   and "lora" not in k and not k.startswith("ia3")), None)  # fmt: skip
    packed = _packed(role, label, ends, weight, bias)
    if packed is not None:
        return packed
    if weight is not None:
        tail = weight.name[len(place) + 1 :] if place else weight.name
        return _plain(role, tail, weight, bias)
    return _adapter(role, label, ends, bias)


def _plain(role: str, label: str, weight: Tensor, bias: int | None) -> Projection | None:
    shape = weight.shape
    while len(shape) > 2 and shape[-1] == 1:  # convolutions over single positions
        shape = shape[:-1]
    if len(shape) == 3 and role in {"q", "k", "v"}:  # (in, heads, width)
        return Projection(
            role, label, shape, shape[1] * shape[2], shape[0], bias, split=(shape[1], shape[2])
        )
    if len(shape) == 3 and role in {"o", "o?"}:
        return Projection(role, label, shape, None, None, bias)
    if len(shape) != 2 or 0 in shape:
        return None
    rows: int | None
    columns: int | None
    rows, columns = shape
    if len(weight.shape) > 2 and columns != rows and (rows % columns == 0):
        columns = None  # a convolution may be grouped: its columns are then those of one group
    turned = bias is not None and rows != columns and bias == columns
    if turned:
        rows, columns = columns, rows
    return Projection(role, label, shape, rows, columns, bias, turned=turned)


def _adapter(
    role: str, label: str, ends: Mapping[str, Tensor], bias: int | None
) -> Projection | None:
    down = next((t for k, t in ends.items() if re.search(r"lora_(A|down)", k)), None)
    up = next((t for k, t in ends.items() if re.search(r"lora_(B|up)", k)), None)
    if down is not None or up is not None:
        rows = up.shape[0] if up is not None and len(up.shape) >= 2 else None
        columns = down.shape[1] if down is not None and len(down.shape) >= 2 else None
        shape = (rows or 0, columns or 0)
        return Projection(role, label, shape, rows, columns, bias, form="LoRA")
    scaled = next((t for k, t in ends.items() if k.startswith("ia3")), None)
    if scaled is not None:
        return Projection(role, label, scaled.shape, prod(scaled.shape), None, bias, form="IA3")
    return None


def _packed(
    role: str, label: str, ends: Mapping[str, Tensor], weight: Tensor | None, bias: int | None
) -> Projection | None:
    quantised, scales, zeros = (_two(ends.get(k)) for k in ("qweight", "scales", "qzeros"))
    if quantised is not None:
        rows = scales.shape[1] if scales is not None else bias
        columns = None
        if rows is not None and zeros is not None and zeros.shape[1] and rows % zeros.shape[1] == 0:
            factor = rows // zeros.shape[1]
            first, second = quantised.shape
            columns = (
                first * factor if second == rows else first if second * factor == rows else None
            )
        shape = quantised.shape
        return Projection(role, label, shape, rows, columns, bias, form="packed (qweight, scales)")
    short = _two(ends.get("weight_packed"))
    if short is not None:
        shape = short.shape
        return Projection(role, label, shape, shape[0], None, bias, form="packed (weight_packed)")
    if weight is None:
        return None
    absmax = any("absmax" in k or "quant_state" in k for k in ends)
    integers = bool(_INTEGERS.fullmatch(weight.dtype))
    if absmax or (integers and len(weight.shape) == 2 and weight.shape[1] == 1):
        numbers = 2 * prod(weight.shape)
        return Projection(
            role, label, weight.shape, bias, numbers // bias if bias else None, bias,
            numbers=numbers, form="packed (bitsandbytes, 4 bits)",
        )  # fmt: skip
    if not integers or weight.dtype.upper() in {"I8", "INT8"}:
        return None  # one number for each element: int8 with its scale, or floats
    scale = _two(ends.get("weight_scale"))
    rows = weight.shape[0] if scale is not None and scale.shape[:1] == weight.shape[:1] else bias
    return Projection(
        role, label, weight.shape, rows, None, bias, form=f"packed ({weight.dtype} weight)"
    )


def _two(tensor: Tensor | None) -> Tensor | None:
    return tensor if tensor is not None and len(tensor.shape) == 2 else None
