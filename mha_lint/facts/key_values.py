"""Whether the value that a key stands for comes from the position of that key."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import Stand, combined, positions_in
from mha_lint.facts.order import NotArrangedError, order_of, score_operands, value_side
from mha_lint.facts.places import span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.position_facts import Pairing
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_tensor
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct, trace, varies_along


@unless_data_decides
def measure_pairing(bench: Bench, site: Site) -> Fact[Pairing]:
    """Return from where the keys and the values of `site` come, at the first slot that differs."""
    if site.kind not in (Kind.SELF, Kind.CROSS, Kind.POOLING) or any(
        m.score is None or m.q is None or m.k is None or m.v is None for m in site.all
    ):
        return NotApplicable("the scores are no product of queries and keys")
    found: Pairing | None = None
    for member in site.all:
        try:
            one = _of(bench, member)
        except NotArrangedError as error:
            return Unknown(str(error))
        if isinstance(one, NotApplicable):
            return one
        found = found or one
        if not one.paired:
            found = one
            break
    assert found is not None
    return Known(found, "measured: the position of which each key and each value is made")


def _of(bench: Bench, site: Site) -> Pairing | NotApplicable:
    assert site.k is not None
    k, v = site.k, site.v
    root = _root(bench, k, v)
    apart = NotApplicable("keys and values are not made from one tensor")
    if root is None:
        return apart
    of_k, of_v = (_positions(bench, operand, root) for operand in (k, v))
    if of_k is None or of_v is None:
        return apart
    keys = score_operands(site, Stand(bench, {k.node: of_k}))[1]
    values = value_side(site, Stand(bench, {v.node: of_v}), order_of(bench, site))[0]
    key, value = _single(keys), _single(values)
    if key is None or value is None or key.shape != value.shape:
        return NotApplicable("a key or a value holds channels of several positions")
    if not torch.equal(key.sort(-1).values, value.sort(-1).values):
        return NotApplicable("keys and values are made from different positions")
    differs = (key != value).nonzero()
    if not len(differs):
        return Pairing(True)
    group, slot = (int(x) for x in differs[0])
    n = int(key.max()) + 1
    shifts = distinct((value - key) % n)
    moved = "v" if _ascending(key) >= _ascending(value) else "k"
    return Pairing(
        False,
        slot=slot,
        key=int(key[group, slot]),
        value=int(value[group, slot]),
        shift=shifts[0] if len(shifts) == 1 else None,
        moved=moved,
        span=_moved_at(bench, v if moved == "v" else k, root) or _weights_at(bench, site),
    )


def _read(operand: Operand) -> Node | None:
    """Return the data that the projection of `operand` is applied to."""
    source = operand.source
    if source is None or source.learned or source.kind not in ("projection", "input"):
        return None
    return source.reads if source.reads is not None else source.node


def _root(bench: Bench, k: Operand, v: Operand) -> Node | None:
    """Return the last tensor that both operands are made from."""
    one, other = _read(k), _read(v)
    if one is None or other is None or not k.position_axes or not v.position_axes:
        return None
    both = bench.dependence.ancestors([one]) & bench.dependence.ancestors([other])
    made = (n for n in reversed(both) if is_tensor(bench.recording, n))
    return next((n for n in made if bench.dependence.inputs_of(n)), None)


def _positions(bench: Bench, operand: Operand, root: Node) -> Tensor | None:
    """Return, in the shape of `operand`, the position in `root` of each element, -1 for none."""
    source, found = operand.source, positions_in(bench, operand)
    assert source is not None
    axes = sorted(operand.position_axes)
    traced = trace(bench.replay, root, source.node)
    moved = [
        a
        for a, index in enumerate(traced.index)
        if traced.clean[a] and any(varies_along(index, x) for x in axes)
    ]
    if not moved or not bool(traced.responds.all()):
        return None
    code = combined(traced.shape, traced.index, moved)
    code = code.permute(*axes, *(a for a in range(code.dim()) if a not in axes))
    table = _single(code.reshape(math.prod(code.shape[: len(axes)]), -1))
    return None if table is None else torch.where(found < 0, -1, table[found.clamp(min=0)])


def _single(positions: Tensor) -> Tensor | None:
    """Return the one position along the last axis of `positions`, None where there are several."""
    least, most = positions.amin(-1), positions.amax(-1)
    if bool((least < 0).any()) or not torch.equal(least, most):
        return None
    return most


def _ascending(positions: Tensor) -> int:
    """Return how many rows of `positions` ascend."""
    return int((positions.diff() > 0).all(-1).sum())


def _moved_at(bench: Bench, operand: Operand, root: Node) -> Span | None:
    """Return the first operation behind which the positions of `operand` are in another order."""
    whole = trace(bench.replay, root, operand.node)
    axes = [a for a, i in enumerate(whole.index) if any(varies_along(i, r) for r in operand.rows)]
    return _turned_at(bench, root, operand.node, axes)


def _weights_at(bench: Bench, site: Site) -> Span | None:
    """Return the first operation behind which the scores of the keys, or the weights, are so."""
    found, passed = site.normaliser, site.to_logits
    if passed is None:
        return None
    first = _turned_at(bench, site.scores, found.logits, site.key_axes)
    keys = [passed.index[a] for a in site.key_axes]
    native = [a for a in range(keys[0].dim()) if any(varies_along(i, a) for i in keys)]
    return first or _turned_at(bench, found.weights, site.weights, native)


def _turned_at(bench: Bench, start: Node, end: Node, axes: Iterable[int]) -> Span | None:
    """Return the first operation behind `start` that leaves no ascending order along `axes` of it."""
    for node in bench.dependence.between(start, end):
        if not is_tensor(bench.recording, node):
            continue
        traced = trace(bench.replay, start, node)
        for index in (traced.index[a] for a in axes if traced.clean[a]):
            if any(bool((index.diff(dim=d) < 0).any()) for d in range(index.dim())):
                return span_of(node)
    return None
