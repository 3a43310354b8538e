"""How a right split lays samples, heads, positions and channels out, and whether an operand has it.

Right is whatever gives each group one sample, its rows positions and its columns one fixed set of
channels: consecutive, interleaved, fused or repeated (grouped) heads alike, in any order of groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.oracle.closeness import difference
from mha_lint.oracle.data import Operand, SiteData
from mha_lint.oracle.gather import Gathered, constant_along, gain_between, gather_from


@dataclass(frozen=True, slots=True, eq=False)
class RowLabels:
    """What the rows of an operand are: ``sample``, ``position`` (G, R) long, ``head`` (G,) long.

    ``head`` numbers the sets of channels; groups with one set have one number.
    """

    sample: Tensor
    position: Tensor
    head: Tensor


def due_heads(operand: Operand, heads: int) -> Tensor:
    """Return (h, D): the channels that each of `heads` heads is to take from the source."""
    width = operand.value.shape[-1]
    if operand.source_heads is not None:
        channels = operand.source_heads.to(operand.value.device)
        return channels.repeat_interleave(max(1, heads // len(channels)), dim=0)
    source = operand.source
    own = heads if source is None else max(1, source.shape[-1] // width)
    own = own if heads % own == 0 else heads
    starts = torch.arange(own, device=operand.value.device) * width
    channels = starts[:, None] + torch.arange(width, device=operand.value.device)[None, :]
    return channels.repeat_interleave(heads // own, dim=0)


def right_operand(operand: Operand, heads: int, source: Tensor | None = None) -> Tensor | None:
    """Return (B, h, T, D): `source` (default: the operand's own) split as it should be."""
    source = operand.source if source is None else source
    if source is None:
        return None
    channels = due_heads(operand, heads)
    if int(channels.max()) >= source.shape[-1]:
        return None
    return source[:, :, channels].permute(0, 2, 1, 3)


def right_labels(data: SiteData, operand: Operand) -> tuple[Gathered, RowLabels] | None:
    """Return the gather and the row labels of an operand that is split right, else None."""
    source = operand.source
    if source is None or operand.opaque is not None:
        return None
    quick = _consecutive(operand, source, data.heads)
    found = quick or gather_from(operand.value, source, tuple(data.named_scales.values()))
    if found is None:
        return None
    labels = row_labels(found.index, source.shape)
    return None if labels is None else (found, labels)


def row_labels(index: Tensor, shape: torch.Size) -> RowLabels | None:
    """Return the row labels of a split that keeps samples, positions and channels apart."""
    samples, positions, channels = coordinates(index, shape)
    offsets = positions - positions[:, :, :1]  # rows may be patches of positions, all alike
    pure = (
        constant_along(offsets, (1,))
        and constant_along(channels, (1,))
        and constant_along(samples, (1, 2))
    )
    if not pure:
        return None
    sets = channels[:, 0, :]
    _, head = torch.unique(sets, dim=0, return_inverse=True)
    return RowLabels(samples[:, :, 0], positions[:, :, 0], head)


def coordinates(index: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
    """Return sample, position and channel of each element, from flat indices into (B, T, C)."""
    _, t, c = shape
    return index // (t * c), (index // c) % t, index % c


def _consecutive(operand: Operand, source: Tensor, heads: int) -> Gathered | None:
    """Try the usual splits first: they need no search and work when numbers occur twice."""
    if operand.value.shape[0] != source.shape[0] * heads:
        return None
    numbers = torch.arange(source.numel(), device=source.device).view(source.shape)
    index = right_operand(operand, heads, numbers)
    if index is None or index.shape[2:] != operand.value.shape[1:]:
        return None
    for order in (index, index.transpose(0, 1)):
        flat = order.reshape(operand.value.shape)
        candidate = source.flatten()[flat]
        gain = gain_between(operand.value, candidate)
        if gain is not None:
            return Gathered(flat, gain, difference(operand.value, candidate * gain))
    return None
