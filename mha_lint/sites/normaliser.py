"""Find what normalises the scores, by what it does: it couples elements that were apart before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.sites.dependence import Dependence, is_number, op, operands, shape

SOFTMAX = frozenset(["softmax", "log_softmax"])
SQUASHING = frozenset(
    {"sigmoid", "relu", "relu6", "softplus", "hardsigmoid", "square", "pow", "abs", "exp"}
)
"""What can stand in the place of a softmax: weights are not negative."""
SIGNED = frozenset({"tanh", "gelu", "silu", "elu", "leaky_relu", "logsigmoid", "selu", "mish"})
"""Activations of a layer: what they give is no weight."""


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
    if calls:
        first = calls[0]
        out = first
        if op(first) == "log_softmax":
            out = next(
                (n for n in path if op(n) == "exp" and first in dependence.ancestors([n])), first
            )
        later = _couplings(dependence, replay, out, end)
        return Normaliser(_before_shift(dependence, operands(first)[0]), out, "softmax", later)
    # A maximum that is taken off first couples too: what counts stands behind the exponential.
    exponentials = [n for n in path if op(n) in ("exp", "exp2")]
    couplings = _couplings(dependence, replay, exponentials[0] if exponentials else start, end)
    if couplings:
        out = couplings[0]
        logits = _before_exp(dependence, path, start, out)
        return Normaliser(logits, out, "coupled", couplings[1:])
    for node in path:
        if op(node) in SQUASHING | SIGNED and len(operands(node)) == 1:
            return Normaliser(operands(node)[0], node, op(node))
    return Normaliser(end, end, None)


def _couplings(dependence: Dependence, replay: Replay, start: Node, end: Node) -> tuple[Node, ...]:
    """Return the nodes at which one element of `start` first moves several elements of one shape.

    The element moved is tried at several places, as masks hide some of them.
    """
    recording = dependence.recording
    path = [n for n in dependence.between(start, end) if is_number(recording, n)]
    if not path:
        return ()
    found: list[Node] = []
    cut = start
    while True:
        rest = [n for n in dependence.between(cut, end) if is_number(recording, n)]
        coupled = _first_coupling(replay, cut, rest, end)
        if coupled is None or len(found) > 3:
            return tuple(found)
        found.append(coupled)
        cut = coupled


def _first_coupling(replay: Replay, cut: Node, path: list[Node], end: Node) -> Node | None:
    if not path:
        return None
    at = replay.base(cut)
    flat = at.reshape(-1)
    spots = _spots(at)
    for spot in spots:
        moved_in = flat.clone()
        moved_in[spot] += 0.37
        try:
            moved = replay.run(path, {cut: moved_in.reshape(at.shape)})
        except (RuntimeError, IndexError):
            continue  # code that sorts or counts may fail on moved data
        if not _changed(moved[-1], replay.base(end)).any():
            continue
        for node, value in zip(path, moved, strict=True):
            if int(_changed(value, replay.base(node)).sum()) > max(1, value.numel() // at.numel()):
                return node
        return None
    return None


def _spots(at: Tensor) -> list[int]:
    """Return flat places to try: first those that are not the largest along any axis."""
    n = at.numel()
    last_rows = [n - at.shape[-1], n - 1, n // 2, 0, n - at.shape[-1] + 1] if at.dim() else [0]
    return list(dict.fromkeys(max(0, min(n - 1, s)) for s in last_rows))


def _changed(value: Tensor, base: Tensor) -> Tensor:
    return ((value - base).abs() > 1e-13 * base.abs().clamp(min=1.0)) & torch.isfinite(value)


def _before_exp(dependence: Dependence, path: list[Node], start: Node, out: Node) -> Node:
    """Return the input of the exponential whose sum normalises, before the maximum is taken off."""
    above = dependence.ancestors([out])
    exponentials = [n for n in path if op(n) in ("exp", "exp2") and n in above]
    if not exponentials:
        # No exponential: the last tensor of the scores' own size before the coupling.
        recording = dependence.recording
        size = recording.values[start].numel()
        whole = [
            n for n in path if n in above and n is not out and recording.values[n].numel() == size
        ]
        return whole[-1] if whole else start
    return _before_shift(dependence, operands(exponentials[0])[0])


def _before_shift(dependence: Dependence, node: Node) -> Node:
    """Step back over ``x - x.max()``, which the softmax does not feel."""
    while op(node) in ("sub", "add", "clamp"):
        first = operands(node)[0]
        if shape(dependence.recording, first) != shape(dependence.recording, node):
            break
        others = operands(node)[1:]
        if not others or not all(first in dependence.ancestors([o]) for o in others):
            break
        node = first
    return node
