"""Take out ``x - x.max()``: one number taken off all scores, which a softmax does not see.

It ties every score to the largest one, so that heads, queries and keys seem mixed before the softmax.
Whether nothing but the numbers on the way changes without it is measured.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from mha_lint.capture import Recording, Replay
from mha_lint.sites.dependence import is_tensor, op, operands
from mha_lint.sites.normaliser import SOFTMAX

_LARGEST = frozenset(["max", "amax", "detach", "clone", "unsqueeze", "view", "reshape", "to"])
SAME = 1e-9
"""Relative difference of float64 results that rounding explains."""
ERRORS = (RuntimeError, IndexError, ValueError, TypeError)


def without_levels(recording: Recording) -> None:
    """Rewrite ``x - x.max()`` as ``x`` wherever no output of `recording` changes by it."""
    found = [n for n in recording.graph.nodes if op(n) == "sub" and _is_level(recording, n)]
    if not found:
        return
    outputs = [n for n in recording.outputs if is_tensor(recording, n)]
    try:
        before = [Replay(recording).base(n) for n in outputs]
    except ERRORS:
        return
    dropped = False
    for node in found:
        read = {user: (user.args, user.kwargs) for user in node.users}
        node.replace_all_uses_with(node.args[0])
        if _same(recording, outputs, before):
            recording.graph.erase_node(node)
            del recording.values[node]
            dropped = True
        else:
            for user, (args, kwargs) in read.items():
                user.args, user.kwargs = args, kwargs
            recording.programs.clear()
    if dropped:
        _refresh(recording)


def _is_level(recording: Recording, node: Node) -> bool:
    """Return whether the second operand is the largest element of the first, and nothing else."""
    read = operands(node)
    if len(read) != 2 or len(node.args) < 2 or node.kwargs or node in recording.outputs:
        return False
    data, level = read
    if node.args[0] is not data or node.args[1] is not level or not is_tensor(recording, level):
        return False
    if recording.values[level].numel() != 1 or recording.values[data].numel() == 1:
        return False
    if _meets_exponential(node):
        return False  # there it keeps the sum finite
    while level is not data and op(level) in _LARGEST and len(operands(level)) == 1:
        level = operands(level)[0]
    return level is data


def _meets_exponential(node: Node) -> bool:
    """Return whether an exponential of the code's own reads `node`, and not a softmax before it."""
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        for user in one.users:
            if op(user) in ("exp", "exp2"):
                return True
            if user not in seen and op(user) not in SOFTMAX:
                seen.add(user)
                waiting.append(user)
    return False


def _same(recording: Recording, outputs: list[Node], before: list[torch.Tensor]) -> bool:
    recording.programs.clear()
    try:
        after = [Replay(recording).base(n) for n in outputs]
    except ERRORS:
        return False
    return all(
        torch.allclose(a.double(), b.double(), rtol=SAME, atol=SAME, equal_nan=True)
        for a, b in zip(after, before, strict=True)
    )


def _refresh(recording: Recording) -> None:
    """Compute the values on the way again."""
    replay = Replay(recording, dtype=None)
    for node in recording.graph.nodes:
        if node.op == "call_function" and is_tensor(recording, node):
            recording.values[node] = replay.base(node)
