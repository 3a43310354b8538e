"""One operand of a site: its axes, its source, and what varies along each axis."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.sites.source import Source, Sources
from mha_lint.sites.trace import (
    Trace,
    dominant_index,
    influence_codes,
    mostly_varies_along,
    trace,
    varies_along,
)

FEW_SLICES = 64
"""Up to this many slices along a mixed axis are moved one by one."""


@dataclass(frozen=True, slots=True)
class Variation:
    """What changes along one axis of an operand: axes of the source that hold data, and channels."""

    data: frozenset[int] = frozenset()
    channels: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """q, k or v as a contraction reads it.

    ``rows``, ``features``, ``groups``: axes of `node`; a score matrix is spanned by rows, a score
    sums over features, groups are samples and heads. ``source``: the origin that reaches most of
    it; ``sources``: all; ``trace``: where its elements come from in ``source.node``; ``varies``:
    one `Variation` per axis.
    """

    node: Node
    rows: tuple[int, ...]
    features: tuple[int, ...]
    groups: tuple[int, ...]
    sources: tuple[Source, ...]
    source: Source | None
    trace: Trace | None
    varies: tuple[Variation, ...]

    @property
    def position_axes(self) -> frozenset[int]:
        """Return the axes of the source that the rows run over."""
        return frozenset().union(*(self.varies[a].data for a in self.rows))

    @property
    def learned(self) -> bool:
        """Return whether the operand is made from parameters alone, and by no projection."""
        return self.source is not None and self.source.kind == "learned"

    @property
    def holds_data(self) -> bool:
        """Return whether some input of the call reaches the operand."""
        return self.source is not None and not self.source.learned


class Operands:
    """Describe operands of one recording at one set of inputs and parameters."""

    def __init__(self, sources: Sources, replay: Replay) -> None:
        """Measure on `replay`."""
        self.sources = sources
        self.replay = replay
        self._seen: dict[
            Node, tuple[tuple[Source, ...], Source | None, Trace | None, tuple[Variation, ...]]
        ] = {}

    def describe(
        self, node: Node, rows: tuple[int, ...], features: tuple[int, ...], groups: tuple[int, ...]
    ) -> Operand:
        """Return `node` as an operand with these axes."""
        if node not in self._seen:
            self._seen[node] = self._measure(node, features)
        return Operand(node, rows, features, groups, *self._seen[node])

    def _measure(
        self, node: Node, features: tuple[int, ...]
    ) -> tuple[tuple[Source, ...], Source | None, Trace | None, tuple[Variation, ...]]:
        found = tuple(self.sources.of(node))
        best: tuple[Source, Trace] | None = None
        for source in sorted(found, key=lambda s: s.learned)[:6]:
            traced = trace(self.replay, source.node, node)
            if best is None or traced.responds.sum() > 1.5 * best[1].responds.sum():
                best = (source, traced)
        value = self.replay.base(node)
        nothing = tuple(Variation() for _ in range(value.dim()))
        if best is None or not bool(best[1].responds.any()):
            return found, None, None, nothing
        source, traced = best
        for _ in range(2):
            behind = self._behind_position_map(source, traced, node, features)
            if behind is None:
                break
            source, traced = behind
        if source.kind == "input":
            source = self._with_channels(source, traced, node, features)
        return found, source, traced, self.variations(source, traced, node, features)

    def _behind_position_map(
        self, source: Source, traced: Trace, node: Node, features: tuple[int, ...]
    ) -> tuple[Source, Trace] | None:
        """Look behind a learned map over positions (Linformer), which is no projection of channels."""
        if source.kind != "projection" or source.reads is None:
            return None
        varies = self.variations(source, traced, node, features)
        if not features or any(varies[a].channels or not varies[a].data for a in features):
            return None
        earlier = [s for s in self.sources.of(source.reads) if s.kind == "projection"]
        if not earlier:
            return None
        behind = trace(self.replay, earlier[0].node, node)
        varies = self.variations(earlier[0], behind, node, features)
        if not any(varies[a].channels for a in features):
            return None  # the features are positions: channels attend to channels
        return earlier[0], behind

    def _with_channels(
        self, source: Source, traced: Trace, node: Node, features: tuple[int, ...]
    ) -> Source:
        """Tell which axis of a ready-made input holds channels: heads and features are cut from it."""
        rank = len(traced.shape)
        summed = {
            a for a, index in enumerate(traced.index)
            if traced.shape[a] > 1 and any(varies_along(index, f) for f in features)
        }  # fmt: skip
        if rank == 4 and summed == {2, 3}:
            return dataclasses.replace(
                source, channel_axes=(1,), data_axes=(0, 2, 3)
            )  # a (B, C, H, W) map
        groups = [a for a in range(traced.responds.dim()) if a not in features]
        long = [a for a, count in enumerate(traced.shape) if count > 1]
        candidates = [
            a for a in long if traced.clean[a]
            and any(varies_along(traced.index[a], f) for f in features)
            and any(varies_along(traced.index[a], g) for g in groups)
        ]  # fmt: skip
        if not candidates:  # a norm over the channels mixes them, and leaves each the largest part
            mixed = [a for a in long if not traced.clean[a] and traced.shape[a] <= FEW_SLICES]
            nearest = {a: dominant_index(self.replay, source.node, node, a) for a in mixed}
            candidates = [
                a for a, index in nearest.items()
                if any(mostly_varies_along(index, f) for f in features)
                and any(mostly_varies_along(index, g) for g in groups)
            ]  # fmt: skip
        if len(candidates) != 1:
            return source
        (channel,) = candidates
        rest = tuple(a for a in range(rank) if a != channel)
        width = traced.shape[channel]
        return dataclasses.replace(
            source, channel_axes=(channel,), data_axes=rest, in_width=width, out_width=width
        )

    def variations(
        self, source: Source, traced: Trace, node: Node, features: tuple[int, ...]
    ) -> tuple[Variation, ...]:
        """Return for every axis of `node` what varies along it."""
        channel_maps = self.channel_maps(source, traced, node, features)
        out: list[Variation] = []
        # Where positions are mixed (pooled keys, a convolution), sets of positions stand for them.
        clean: dict[int, Tensor] = {}
        mixed: dict[int, Tensor] = {}
        for a in source.data_axes:
            if traced.shape[a] > 1 and traced.clean[a]:
                clean[a] = traced.index[a]
            elif traced.shape[a] > 1:
                mixed[a] = self._mixed_axis(source, traced, node, a)
        for axis in range(traced.responds.dim()):
            data = frozenset(
                [a for a, index in clean.items() if varies_along(index, axis)]
                + [a for a, index in mixed.items() if mostly_varies_along(index, axis)]
            )
            channels = any(
                varies_along(m, axis)
                for m in (channel_maps[0] if axis in features else channel_maps[1])
            )
            out.append(Variation(data, channels))
        return tuple(out)

    def _mixed_axis(self, source: Source, traced: Trace, node: Node, axis: int) -> Tensor:
        if traced.shape[axis] <= FEW_SLICES:
            return dominant_index(self.replay, source.node, node, axis)
        return influence_codes(self.replay, source.node, node, axis)

    def channel_maps(
        self, source: Source, traced: Trace, node: Node, features: tuple[int, ...]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return maps of `node`'s shape whose values tell channels apart: by element, and by vector.

        The second kind holds the set of channels of the whole feature vector, since a rotation by a
        zero angle reads fewer channels than one by any other.
        """
        by_element: list[Tensor] = []
        by_vector: list[Tensor] = []
        for axis in source.channel_axes:
            if traced.shape[axis] == 1:
                continue
            if traced.clean[axis]:
                index = traced.index[axis]
                by_element.append(index)
                by_vector.append(_sets(index, features))
            else:
                code = influence_codes(self.replay, source.node, node, axis)
                by_element.append(code)
                by_vector.append(_union(code, features))
        return by_element, by_vector


def _sets(index: Tensor, features: tuple[int, ...]) -> Tensor:
    """Replace every index by a code of the set of indices along `features`."""
    if not features:
        return index
    low = torch.where(index < 0, torch.iinfo(index.dtype).max, index).amin(features, keepdim=True)
    high = index.amax(features, keepdim=True)
    total = index.clamp(min=0).sum(features, keepdim=True)
    code = (low.clamp(max=1 << 20) << 40) + (high.clamp(min=0) << 20) + total % (1 << 20)
    return torch.where(index < 0, torch.full_like(index, -1), code.expand_as(index))


def _union(code: Tensor, features: tuple[int, ...]) -> Tensor:
    """Return the bitwise or of `code` along `features`, expanded back."""
    out = code
    for axis in features:
        part = out.movedim(axis, 0)
        joined = part[0]
        for one in part[1:]:
            joined = joined | one
        out = joined.unsqueeze(0).expand_as(part).movedim(0, axis)
    return torch.where(out == 0, torch.full_like(out, -1), out)
