"""Which of q, k and v come through one and the same weight, with nothing that tells them apart."""

from __future__ import annotations

from math import prod

import torch
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import count_heads
from mha_lint.facts.normaliser import averages_its_share
from mha_lint.facts.stacking import map_after
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import distinct, trace, varies_along

GAIN = 1e-3
"""Relative spread of the ratio of two gains up to which they count as one."""


def shared_pairs(bench: Bench, site: Site) -> tuple[str, ...]:
    """Return the pairs among "qk", "qv", "kv" that share a weight, ("qkv",) for all three."""
    found = tuple(
        one + other
        for one, other in ("qk", "qv", "kv")
        if all(
            _same(bench, m, one, other) and not _told_apart(bench, m, one, other) for m in site.all
        )
    )
    return ("qkv",) if len(found) == 3 else found


def _told_apart(bench: Bench, site: Site, one: str, other: str) -> bool:
    """Return whether something behind the shared weight makes two maps of it after all."""
    a: Operand = getattr(site, one)
    b: Operand = getattr(site, other)
    if mixes_positions(a) is not mixes_positions(b) or _own_gains(bench, a, b):
        return True
    if one + other == "qk" and _exchanged(bench, a, b):
        return True
    return one + other == "kv" and (
        _mapped_per_head(bench, site) or _asks_again(bench, site) or averages_its_share(bench, site)
    )


def _exchanged(bench: Bench, q: Operand, k: Operand) -> bool:
    """Return whether the very tensors of q and k change places at another site.

    Two texts or images that ask each other by one score matrix: each is made once, for both roles.
    """
    if q.source is None or k.source is None or q.source.node is k.source.node:
        return False
    pair = (k.source.node, q.source.node)
    return any(
        m.q is not None and m.k is not None and m.q.source is not None and m.k.source is not None
        and (m.q.source.node, m.k.source.node) == pair
        for site in bench.sites for m in site.all
    )  # fmt: skip


def serves_all_heads(bench: Bench, site: Site) -> bool:
    """Return whether one head of keys and values serves several heads of queries.

    Then it is a latent of its own: each head's W_Q and W_O make keys and values of it, as maps that
    are absorbed by their neighbours do.
    """
    keys = [m.k for m in site.all if m.k is not None]
    queries = [m.q for m in site.all if m.q is not None]
    return count_heads(bench, keys) == 1 and (count_heads(bench, queries) or 0) > 1


def mixes_positions(operand: Operand) -> bool:
    """Return whether a pool or a convolution makes one position of several."""
    source, traced = operand.source, operand.trace
    if source is None or traced is None:
        return False
    return any(not traced.clean[a] for a in source.data_axes if traced.shape[a] > 1)


def _own_gains(bench: Bench, a: Operand, b: Operand) -> bool:
    """Return whether parameters scale the channels of the two in different ways.

    So a gated attention unit makes q and k from one narrow map, each with a gain of its own.
    """
    assert a.source is not None and b.source is not None
    learned = [_parameters_behind(bench, o) for o in (a, b)]
    if not any(learned):
        return False
    if learned[0] != learned[1]:
        return True
    gains = [_gain_of_channels(o) for o in (a, b)]
    if gains[0] is None or gains[1] is None or a.source.node is not b.source.node:
        return False
    known = torch.isfinite(gains[0]) & torch.isfinite(gains[1]) & (gains[1] > 1e-9)
    ratio = gains[0][known] / gains[1][known]
    return bool(ratio.numel()) and bool(ratio.max() - ratio.min() > GAIN * ratio.max())


def _parameters_behind(bench: Bench, operand: Operand) -> frozenset[str]:
    """Return the names of the parameters that act between the projection and the operand."""
    assert operand.source is not None
    dep, start = bench.dependence, operand.source.node
    path = [n for n in dep.between(start, operand.node) if not _maps_positions(bench, operand, n)]
    others = [n for node in path for n in node.all_input_nodes if dep.learned_only(n)]
    return frozenset().union(*(dep.parameters(n) for n in others))


def _maps_positions(bench: Bench, operand: Operand, node: Node) -> bool:
    """Return whether `node` makes slots of positions, as Linformer does, and leaves channels alone."""
    source = operand.source
    found = bench.finder.sources.learned_map(node)
    contraction = bench.finder.sources.contraction(node) if found is not None else None
    if source is None or found is None or contraction is None:
        return False
    traced = trace(bench.replay, source.node, found[0])
    if not traced.all_clean:
        return False
    _, labels = contraction.side(contraction.left is found[0])
    summed = [i for i, x in enumerate(labels) if x is not None and x in contraction.summed]
    return not any(
        varies_along(traced.index[a], i) for a in source.channel_axes for i in summed
    ) and any(varies_along(traced.index[a], i) for a in source.data_axes for i in summed)


def _gain_of_channels(operand: Operand) -> torch.Tensor | None:
    """Return by how much each element of the source is multiplied, NaN where it is not read."""
    traced = operand.trace
    if traced is None or traced.gain is None or not traced.all_clean:
        return None
    gains = torch.full((prod(traced.shape),), float("nan"), dtype=torch.float64)
    flat = traced.flat()
    gains[flat[traced.responds]] = traced.gain[traced.responds].abs().to(gains)
    return gains


def _mapped_per_head(bench: Bench, site: Site) -> bool:
    """Return whether a map of its own for every head acts on the context.

    Absorbed latent attention compares and sums the latents themselves; what makes values of them is
    applied to the sum.
    """
    source = map_after(bench, site.context)
    found = bench.finder.sources.contraction(source.call) if source is not None else None
    return found is not None and bool(found.shared)


def _asks_again(bench: Bench, site: Site) -> bool:
    """Return whether the context meets the same keys again: the update of a Hopfield network."""
    for other in bench.sites:
        for member in other.all:
            if member is site or member.q is None or member.k is None:
                continue
            # The context asks the same keys again, or they ask it (k-means: means and members).
            pairs = ((member.q, member.k), (member.k, member.q))
            if any(
                one_tensor(bench, same, site.k)
                and site.context in bench.dependence.ancestors([made.node])
                for made, same in pairs
            ):
                return True
    return False


def one_tensor(bench: Bench, a: Operand | None, b: Operand | None) -> bool:
    """Return whether two operands read the same channels of one and the same tensor."""
    if a is None or b is None or a.source is None or b.source is None:
        return False
    if a.source.node is not b.source.node or a.source.kind != "projection":
        return False
    read = channels_read(a)
    if read != channels_read(b):
        return False
    if all(isinstance(x, tuple) and x[:1] != ("mixed",) for x in _as_tuple(read)):
        return True
    return all(moved_alike(bench, a, b, axis) for axis in a.source.channel_axes)


def moved_alike(bench: Bench, a: Operand, b: Operand, axis: int) -> bool:
    """Return whether the very channels of their source that move one operand move the other too.

    For channels that a rotation or a norm mixes. Blocks of channels are moved, then their halves.
    """
    assert a.source is not None
    node = a.source.node
    at = bench.replay.base(node)
    base = [bench.replay.base(o.node) for o in (a, b)]
    blocks = [(0, at.shape[axis])]
    while blocks:
        low, high = blocks.pop(0)
        moved_in = at.clone()
        moved_in.narrow(axis, low, high - low).mul_(0.5)
        moved = bench.replay.run([a.node, b.node], {node: moved_in})
        one, other = (bool((m != o).any()) for m, o in zip(moved, base, strict=True))
        if one is not other:
            return False
        if one and high - low > 1:
            middle = (low + high) // 2
            blocks += [(low, middle), (middle, high)]
    return True


def channels_read(operand: Operand) -> object:
    """Return which channels of its source an operand reads, in a form that can be compared."""
    source, traced = operand.source, operand.trace
    assert source is not None and traced is not None
    used: list[object] = []
    for axis in source.channel_axes:
        if not traced.clean[axis] and traced.responds.numel() >= prod(traced.shape):
            used.append(tuple(range(traced.shape[axis])))  # rotated, but all of them
        elif not traced.clean[axis]:
            responds = traced.responds
            used.append(("mixed", int(responds.sum())))
        else:
            used.append(tuple(distinct(traced.index[axis][traced.responds])))
    return tuple(used)


def _same(bench: Bench, site: Site, one: str, other: str) -> bool:
    a: Operand | None = getattr(site, one)
    b: Operand | None = getattr(site, other)
    if a is None or b is None or a.source is None or b.source is None:
        return False
    if a.source.kind != "projection" or b.source.kind != "projection":
        return False
    if a.source.parameters != b.source.parameters or not a.source.parameters:
        return False
    if a.source.call is not b.source.call and not _one_weight(bench, a.source, b.source):
        return False
    return channels_read(a) == channels_read(b) and all(
        isinstance(x, tuple) and x[:1] != ("mixed",) for x in _as_tuple(channels_read(a))
    )


def _one_weight(bench: Bench, a: Source, b: Source) -> bool:
    """Return whether two calls apply the very same numbers, not two slices of one parameter."""
    one, other = (bench.finder.sources.learned_map(s.call) for s in (a, b))
    if one is None or other is None:
        return False
    return torch.equal(bench.replay.base(one[1]), bench.replay.base(other[1]))


def _as_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
