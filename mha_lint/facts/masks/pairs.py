"""The tensors of one site as tables of a row for each query and a column for each key."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import grouped
from mha_lint.facts.order import NotArrangedError, order_of, origin_with_masked
from mha_lint.sites.origin import compose
from mha_lint.sites.site import Site
from mha_lint.sites.trace import Trace, trace, varies_along
from mha_lint.sites.unmasked import unmasked


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Which element of a tensor belongs to which query and key, by the axes of the scores.

    ``key_axes``: the axes of the scores that run over keys; all others number the rows (R of them,
    each a query of one sample and head). ``shape``: that of the scores. ``of_logits``: the axes are
    those of the normaliser's input, as where scores are no product.
    """

    bench: Bench
    site: Site
    shape: tuple[int, ...]
    key_axes: tuple[int, ...]
    of_logits: bool = False

    @property
    def keys(self) -> int:
        """Return the number of columns."""
        return math.prod(self.shape[a] for a in self.key_axes)

    def table(self, node: Node, value: Tensor, like: Node | None = None) -> Tensor | None:
        """Return `value`, which `node` has in some run, as (R, K); None where that is not known.

        ``like``: a node of the same layout and size as `node`, with an element for every score, that
        is asked where masks leave no trace of the scores in `node`. Else weights that no score
        reaches are 0.
        """
        if value.numel() != self.bench.replay.base(node).numel():
            return None
        element = self._elements(node)
        if like is not None and (element is None or bool((element < 0).any())):
            same = self.bench.replay.base(like).shape == self.bench.replay.base(node).shape
            element = self._elements(like) if same else None
            if element is not None and bool((element < 0).any()):
                return None
        if element is None:
            return None
        found = value.reshape(-1)[element.clamp(min=0)]
        return self.rows(torch.where(element >= 0, found, torch.zeros_like(found)))

    def rows(self, flat: Tensor) -> Tensor:
        """Return a tensor with one element for each score, in their order, as (R, K)."""
        turned = flat.reshape(self.shape).permute(*self.row_axes, *self.key_axes)
        return turned.reshape(-1, self.keys)

    @property
    def row_axes(self) -> tuple[int, ...]:
        """Return the axes of the scores that number the rows."""
        return tuple(a for a in range(len(self.shape)) if a not in self.key_axes)

    def by_row(self, value: Tensor) -> Tensor | None:
        """Return a tensor laid out as the scores are, but with any number of keys, as (R, K')."""
        if value.dim() != len(self.shape):
            return None
        if any(value.shape[a] != self.shape[a] for a in self.row_axes):
            return None
        turned = value.permute(*self.row_axes, *self.key_axes)
        return turned.reshape(math.prod(self.shape[a] for a in self.row_axes), -1)

    def _elements(self, node: Node) -> Tensor | None:
        """Return for each score the flat element of `node` that came from it, -1 for none."""
        count = math.prod(self.shape)
        value = self.bench.replay.base(node)
        site, replay = self.site, self.bench.replay
        plain = torch.arange(count)
        same = value.squeeze().shape == torch.Size(n for n in self.shape if n != 1)
        if self.of_logits:
            return plain if same else None
        if node is site.scores:
            return plain
        order = self.bench.dependence.order
        if order[node] < order[site.normaliser.weights]:
            here = trace(replay, site.scores, node)
            if same and _is_identity(here):
                return plain
            if not here.all_clean:
                return None
            whole = unmasked(self.bench.dependence, replay, site.scores, node, here).index
            return _inverse(whole, torch.stack([i >= 0 for i in whole]).all(0), self.shape)
        last = site.normaliser.later[-1] if site.normaliser.later else site.normaliser.weights
        if node is site.weights:
            index: tuple[Tensor, ...] | None = self._of_weights()
        elif order[node] >= order[last]:
            index = self._behind(trace(replay, last, node))
        else:
            index = self._behind(trace(replay, site.normaliser.weights, node))
        if same and (index is None or _same_places(self._unmixed(index), self.shape)):
            return plain
        if index is None:
            return None
        known = torch.stack([i >= 0 for i in index]).all(0)
        return _inverse(index, known, self.shape)

    def _of_weights(self) -> tuple[Tensor, ...]:
        """Return which score each weight that meets V came from, masked ones too where that is clear."""
        origin = self.site.origin
        if self.site.to_logits is None or all(bool((i >= 0).all()) for i in origin):
            return origin
        return origin_with_masked(self.bench, self.site) or origin

    def _unmixed(self, index: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return `index` without the axes that were mixed on the way to the logits (talking heads)."""
        assert self.site.to_logits is not None
        pairs = zip(index, self.site.to_logits.clean, strict=True)
        return tuple(i if clean else torch.zeros_like(i) for i, clean in pairs)

    def _behind(self, behind: Trace) -> tuple[Tensor, ...] | None:
        assert self.site.to_logits is not None
        index = self.bench.finder.unmasked_index(self.site)
        return compose(replace(self.site.to_logits, index=index), behind)


def pairs_of(bench: Bench, site: Site) -> Pairs | None:
    """Return the pairs of `site` (a single site or a member), None where it has no keys of its own."""
    shape = tuple(bench.replay.base(site.scores).shape)
    if not math.prod(shape) or not site.key_axes:
        return None
    if site.score is not None:
        index = bench.finder.unmasked_index(site)
        known = torch.stack([i >= 0 for i in index]).all(0)
        if int(known.sum()) > math.prod(
            shape
        ):  # one half of additive scores, laid out for the other
            sized = tuple(known.shape)
            keys = [
                i
                for i in range(len(sized))
                if any(varies_along(index[a], i) for a in site.key_axes)
            ]
            return Pairs(bench, site, sized, tuple(keys), of_logits=True) if keys else None
    return Pairs(bench, site, shape, tuple(sorted(site.key_axes)), of_logits=site.score is None)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """What each row and each pair of a site stands for; see `mha_lint.facts.grouped`.

    ``samples`` (R,): a number for each sample. ``queries`` (R,) and ``keys`` (R, K): positions, -1
    where there is none.
    """

    samples: Tensor
    queries: Tensor
    keys: Tensor


def places_of(pairs: Pairs) -> Places | None:
    """Return what the rows of `pairs` stand for, None where heads are mixed or nothing is known."""
    bench, site = pairs.bench, pairs.site
    try:
        natural = order_of(bench, site).natural
    except NotArrangedError:
        return None
    found = grouped(bench, site)
    sized = (found.queries.shape[0], found.queries.shape[1], found.keys.shape[1])
    if math.prod(sized) != natural.numel():
        return None
    tables = []
    for value in (
        found.samples[:, None, None],
        found.queries[:, :, None],
        found.keys[:, None, :],
    ):
        flat = torch.full((natural.numel(),), -1, dtype=torch.long)
        flat[natural] = value.expand(sized).reshape(-1)
        tables.append(pairs.rows(flat))
    return Places(tables[0][:, 0], tables[1][:, 0], tables[2])


def _inverse(index: tuple[Tensor, ...], known: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Return for each element of the source the flat element of the target that came from it."""
    flat = torch.zeros(known.shape, dtype=torch.long)
    for size, one in zip(shape, index, strict=True):
        flat = flat * size + one.clamp(min=0)
    out = torch.full((math.prod(shape),), -1, dtype=torch.long)
    places = torch.arange(known.numel())[known.reshape(-1)]
    sources = flat.reshape(-1)[known.reshape(-1)]
    if sources.numel() and int(torch.bincount(sources).max()) > 1:
        return None  # heads or positions are mixed
    out[sources] = places
    return out


def _is_identity(found: Trace) -> bool:
    """Return whether, as far as it responds, each element comes from the score in its own place."""
    return _same_places(
        tuple(
            torch.where(found.responds, i, -1) if clean else torch.full_like(i, -1)
            for i, clean in zip(found.index, found.clean, strict=True)
        ),
        found.shape,
    )


def _same_places(index: tuple[Tensor, ...], shape: tuple[int, ...]) -> bool:
    """Return whether `index` names each element's own place, axes aside that were mixed (all 0)."""
    if math.prod(shape) != index[0].numel():
        return False
    own = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    return all(
        bool(((i.reshape(shape) == j) | (i.reshape(shape) < 0)).all()) or not bool((i > 0).any())
        for i, j in zip(index, own, strict=True)
    )
