"""Find what normalises the scores, by what it does: it couples elements that were apart before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.sites.dependence import Dependence, is_number, op, operands, shape
from mha_lint.sites.trace import HIDDEN

SOFTMAX = frozenset(["softmax", "log_softmax"])
SQUASHING = frozenset(
    {"sigmoid", "relu", "relu6", "softplus", "hardsigmoid", "square", "pow", "abs", "exp"}
)
"""What can stand in the place of a softmax: weights are not negative."""
SIGNED = frozenset({"tanh", "gelu", "silu", "elu", "leaky_relu", "logsigmoid", "selu", "mish"})
"""Activations of a layer: what they give is no weight."""


STEP = 0.37
"""By how much one element is moved to see what else moves."""
FAINT = 1e-9
"""A smaller change of the weights, beside the largest of them, tells nothing."""
SPOTS = 24
"""Places to try: behind a sparse normaliser or a mask most elements move nothing."""
MOST = 16
"""Couplings in a row that are looked for: Sinkhorn's algorithm has two in every step."""


@dataclass(frozen=True, slots=True)
class Normaliser:
    """``logits`` goes in, ``weights`` comes out; ``function`` is None when nothing is between.

    ``later``: further nodes on the way to the value contraction that couple elements again.
    ``element``: "softmax" for a softmax call, else the name of the squashing operation or "coupled".
    """

    logits: Node
    weights: Node
    element: str | None
    later: tuple[Node, ...] = ()


def find_normaliser(dependence: Dependence, replay: Replay, start: Node, end: Node) -> Normaliser:
    """Return the normaliser between `start` (scores) and `end` (the operand that meets V)."""
    recording = dependence.recording
    path = [n for n in dependence.between(start, end) if is_number(recording, n)]
    calls = [n for n in path if op(n) in SOFTMAX]
    if calls and not _written_out_before(dependence, replay, path, start, calls[0]):
        first = calls[0]
        out = first
        if op(first) == "log_softmax":
            out = next(
                (n for n in path if op(n) == "exp" and first in dependence.ancestors([n])), first
            )
        later = _couplings(dependence, replay, out, end)
        return Normaliser(
            _before_shift(dependence, replay, operands(first)[0], out), out, "softmax", later
        )
    # A maximum that is taken off first couples too: what counts stands behind the exponential.
    exponentials = [n for n in path if op(n) in ("exp", "exp2")]
    couplings = _couplings(dependence, replay, exponentials[0] if exponentials else start, end)
    if exponentials:
        earlier = _couplings(dependence, replay, start, exponentials[0])
        once = len(earlier) == 1 and earlier[0] is not exponentials[0]
        if once and _holds_logarithms(replay, earlier[0]):  # exp(x - logsumexp(x))
            couplings = (exponentials[0], *couplings)
        elif not couplings:
            couplings = earlier or _couplings(dependence, replay, start, end)
    if couplings:
        couplings = _out_of_log_space(dependence, replay, couplings, exponentials, end)
        out = couplings[0]
        logits = _before_exp(dependence, replay, path, start, out)
        return Normaliser(logits, out, "coupled", couplings[1:])
    for node in dependence.bottlenecks(start, end):
        if op(node) in SQUASHING | SIGNED and len(operands(node)) == 1:
            return Normaliser(operands(node)[0], node, op(node))
    return Normaliser(end, end, None)


def _written_out_before(
    dependence: Dependence, replay: Replay, path: list[Node], start: Node, call: Node
) -> bool:
    """Return whether the scores are normalised by an exponential and a sum before the first `call`."""
    above = dependence.ancestors([call])
    exponentials = [n for n in path if op(n) in ("exp", "exp2") and n in above]
    if not exponentials:
        return False
    end = operands(call)[0]
    return bool(
        _couplings(dependence, replay, exponentials[0], end)
        or (end is not start and _couplings(dependence, replay, start, end))
    )


def _out_of_log_space(
    dependence: Dependence,
    replay: Replay,
    couplings: tuple[Node, ...],
    exponentials: list[Node],
    end: Node,
) -> tuple[Node, ...]:
    """Return `couplings` with the exponential of the first in its place, where that holds logarithms."""
    first = couplings[0]
    if not _holds_logarithms(replay, first):
        return couplings
    passed = dependence.bottlenecks(first, end)
    weights = next((n for n in passed if n in exponentials), None)
    if weights is None:
        return couplings
    above = dependence.ancestors([weights])
    if any(n is not first and n in above for n in couplings):
        return couplings  # several in a row, as in Sinkhorn's algorithm
    return (weights, *(n for n in couplings[1:] if n is not weights))


def _holds_logarithms(replay: Replay, node: Node) -> bool:
    """Return whether `node` may hold logarithms of weights, which are never positive.

    Scores without their maximum are not either, but one of them is 0 in every row.
    """
    value = _unhidden(replay, node)
    if not value.dim() or bool((value > 0).any()):
        return False
    return bool(int((value == 0).sum()) < value.numel() // max(value.shape))


def _unhidden(replay: Replay, node: Node) -> Tensor:
    """Return the value of `node` with small numbers where what it reads is hidden by large ones.

    Beside those the logarithm of a sum is lost to rounding.
    """
    value: Tensor = replay.base(node)
    for read in operands(node):
        at = replay.base(read)
        if at.shape == value.shape and bool((hidden := at.abs() >= HIDDEN).any()):
            spread = torch.linspace(-1, 1, at.numel(), dtype=at.dtype, device=at.device)
            (found,) = replay.run([node], {read: torch.where(hidden, spread.view(at.shape), at)})
            return torch.as_tensor(found)
    return value


def _couplings(dependence: Dependence, replay: Replay, start: Node, end: Node) -> tuple[Node, ...]:
    """Return the nodes at which one element of `start` first moves several elements of one shape.

    Only what every path passes counts: a sort or a sum beside it is but a part of the normaliser.
    The element moved is tried at several places, as masks hide some of them.
    """
    recording = dependence.recording
    found: list[Node] = []
    cut = start
    while len(found) < MOST:
        rest = [n for n in dependence.bottlenecks(cut, end) if is_number(recording, n)]
        coupled = _first_coupling(replay, cut, rest, end)
        if coupled is None:
            break
        found.append(coupled)
        cut = coupled
    return tuple(found)


def _first_coupling(replay: Replay, cut: Node, path: list[Node], end: Node) -> Node | None:
    if not path:
        return None
    at = replay.base(cut)
    flat = at.reshape(-1)
    spots = _spots(at)
    for spot in spots:
        moved_in = flat.clone()
        moved_in[spot] += STEP
        try:
            moved = replay.run(path, {cut: moved_in.reshape(at.shape)})
        except (RuntimeError, IndexError):
            continue  # code that sorts or counts may fail on moved data
        if not _clearly_changed(moved[-1], replay.base(end)):
            continue
        for node, value in zip(path, moved, strict=True):
            if int(_changed(value, replay.base(node)).sum()) > max(1, value.numel() // at.numel()):
                return node
        return None
    return None


def _clearly_changed(value: Tensor, base: Tensor) -> bool:
    """Return whether `value` differs from `base` by so much that what it shares among others shows.

    A score far below the others of its row moves its own weight a little, and theirs by rounding.
    """
    changed = _changed(value, base)
    if not bool(changed.any()):
        return False
    size = base[torch.isfinite(base)].abs().max() if bool(torch.isfinite(base).any()) else 1.0
    return bool(((value - base).abs()[changed] > FAINT * size).any())


def _spots(at: Tensor) -> list[int]:
    """Return flat places to try: first those that stay below the largest along every axis."""
    n = at.numel()
    last_rows = [n - at.shape[-1], n - 1, n // 2, 0, n - at.shape[-1] + 1] if at.dim() else [0]
    below = torch.isfinite(at) & (at.abs() < HIDDEN)
    for axis in range(at.dim()):
        if at.shape[axis] > 1:
            below &= at < at.amax(axis, keepdim=True) - STEP
    low = below.reshape(-1).nonzero().flatten().tolist()
    low = low[:: max(1, len(low) // SPOTS)][::-1]
    # Where scores hardly differ, or differ much, few stay below; a mask may hide the first and the last.
    spread = range(n // (2 * SPOTS), n, max(1, n // SPOTS)) if len(low) < SPOTS // 3 else ()
    return list(dict.fromkeys(max(0, min(n - 1, s)) for s in (*low, *last_rows, *spread)))


def _changed(value: Tensor, base: Tensor) -> Tensor:
    if value.shape != base.shape:
        return torch.zeros_like(base, dtype=torch.bool)  # as long as the data makes it
    return ((value - base).abs() > 1e-13 * base.abs().clamp(min=1.0)) & torch.isfinite(value)


def _before_exp(
    dependence: Dependence, replay: Replay, path: list[Node], start: Node, out: Node
) -> Node:
    """Return the input of the exponential whose sum normalises, before the maximum is taken off."""
    above = dependence.ancestors([out])
    exponentials = [n for n in path if op(n) in ("exp", "exp2") and n in above]
    if exponentials:
        return _before_shift(dependence, replay, operands(exponentials[0])[0], out)
    # No exponential: the last tensor of the scores' own size in which all elements are still apart,
    # the largest too (it may have been taken off).
    at = replay.base(start)
    passed = [
        n for n in dependence.bottlenecks(start, out)
        if n is not out and is_number(dependence.recording, n)
        and replay.base(n).numel() == at.numel()
    ]  # fmt: skip
    moved_in = at.reshape(-1).clone()
    moved_in[int(moved_in.nan_to_num(-HIDDEN).argmax())] += STEP
    try:
        moved = replay.run(passed, {start: moved_in.reshape(at.shape)})
    except (RuntimeError, IndexError):
        return start
    apart = [
        n for n, value in zip(passed, moved, strict=True)
        if int(_changed(value, replay.base(n)).sum()) <= 1
    ]  # fmt: skip
    return apart[-1] if apart else start


def _before_shift(dependence: Dependence, replay: Replay, node: Node, out: Node) -> Node:
    """Step back over ``x - x.max()``, which takes one number off all keys of a query.

    `out`: the normaliser's result. A ``clamp`` against overflow is no step either, where it does
    nothing.
    """
    kept = _axes_kept(replay, node, out)
    while op(node) in ("sub", "add", "clamp"):
        first, *others = operands(node)
        if shape(dependence.recording, first) != shape(dependence.recording, node):
            break
        if others:
            above = all(first in dependence.ancestors([o]) for o in others)
            if not above or not all(_is_level(replay.base(o), kept) for o in others):
                break
        elif op(node) != "clamp" or not torch.equal(replay.base(node), replay.base(first)):
            break
        node = first
    return node


def _axes_kept(replay: Replay, node: Node, out: Node) -> set[int]:
    """Return the axes along which one element of `node` moves one element of `out` only, from the end."""
    at, before = replay.base(node), replay.base(out)
    if at.shape != before.shape:
        return set()
    moved_in = at.reshape(-1).clone()
    moved_in[_spots(at)[0]] += STEP
    (after,) = replay.run([out], {node: moved_in.reshape(at.shape)})
    where = _changed(after, before).nonzero()
    rank = at.dim()
    return {a - rank for a in range(rank) if len(set(where[:, a].tolist())) <= 1}


def coupled_axes(replay: Replay, logits: Node, weights: Node) -> set[int]:
    """Return the axes along which one element of `logits` moves others than its own of `weights`."""
    sizes = replay.base(weights).shape
    rank = len(sizes)
    if replay.base(logits).shape != sizes:
        return set()
    kept = _axes_kept(replay, logits, weights)
    return {a for a in range(rank) if sizes[a] > 1 and a - rank not in kept}


def _is_level(value: Tensor, kept: set[int]) -> bool:
    """Return whether `value` is one number along all axes but those `kept`, counted from the end."""
    rank = value.dim()
    return all(value.shape[a] == 1 or a - rank in kept for a in range(rank))
