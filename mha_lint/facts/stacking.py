"""Learned maps that follow each other with nothing but layout between."""

from __future__ import annotations

from itertools import zip_longest

from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import op, operands
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source

LINEAR_OPS = frozenset(
    [
        "view",
        "reshape",
        "transpose",
        "permute",
        "contiguous",
        "index",
        "chunk",
        "split",
        "getitem",
        "unbind",
        "unflatten",
        "flatten",
        "squeeze",
        "unsqueeze",
        "T",
        "mT",
        "movedim",
        "swapaxes",
        "expand",
        "cat",
        "stack",
        "add",
        "dropout",
        "to",
        "clone",
        "select",
        "narrow",
        "view_read",
    ]
)
"""Operations that keep a linear map linear."""


def map_after(bench: Bench, node: Node) -> Source | None:
    """Return the learned map that alone reads `node`, with nothing but layout between."""
    while True:
        users = [u for u in bench.dependence.users(node) if u in bench.dependence.live]
        if len(users) != 1:
            return None
        (user,) = users
        if bench.finder.sources.learned_map(user) is not None:
            return bench.finder.sources.at(user)
        if op(user) == "add" and all(
            bench.dependence.learned_only(n) for n in operands(user) if n is not node
        ):
            node = user  # a bias
            continue
        if op(user) not in LINEAR_OPS or op(user) in (
            "add",
            "cat",
            "stack",
            "index",
            "select",
            "narrow",
        ):
            return None
        node = user


def saves_weights(bench: Bench, first: Source, second: Source) -> bool:
    """Return whether one map in the place of two would have more weights than both.

    So a convolution of each channel by itself is followed by one that mixes channels: together they
    reach as far as a larger one, with less to learn.
    """
    one, two = _weight(bench, first), _weight(bench, second)
    if one is None or two is None:
        return False
    if not any(size > 1 for size in (*one.shape[2:], *two.shape[2:])):
        return False  # one of them could just be left out
    reach = 1
    for a, b in zip_longest(one.shape[2:], two.shape[2:], fillvalue=1):
        reach *= a + b - 1
    read = min(first.in_width, one.shape[1] * two.shape[1])
    return second.out_width * read * reach > one.numel() + two.numel()


def _weight(bench: Bench, source: Source) -> Tensor | None:
    """Return the weight (out, in per group, ...) of a linear layer or convolution."""
    node = bench.recording.parameters.get(source.parameters[0]) if source.parameters else None
    value = bench.recording.values.get(node) if node is not None else None
    return value if isinstance(value, Tensor) and value.dim() >= 2 else None


def _keeps_all(bench: Bench, node: Node) -> bool:
    """Return whether `node` keeps all channels of one tensor as they are, a bias aside."""
    if op(node) == "add":
        return sum(bench.dependence.on_data(n) for n in operands(node)) == 1
    return op(node) in _WHOLE


_WHOLE = LINEAR_OPS - {
    "add", "cat", "stack", "index", "select", "narrow", "chunk", "split", "unbind", "getitem",
}  # fmt: skip


def chained_operands(bench: Bench, site: Site) -> tuple[tuple[str, str], ...]:
    """Return (operand, other) where one's projection reads what the other's made, as it stands.

    A bottleneck is left out: keys and values are made from one latent on purpose.
    """
    found: list[tuple[str, str]] = []
    ends = {"q": site.q, "k": site.k, "v": site.v}
    maps = {
        name: o.source
        for name, o in ends.items()
        if o is not None and o.source is not None and o.source.kind == "projection"
    }
    for name, source in maps.items():
        if source.reads is None:
            continue
        behind = [s for s in bench.finder.sources.of(source.reads) if s.kind != "learned"]
        for other, earlier in maps.items():
            if len(behind) != 1 or behind[0].call is not earlier.call:
                continue
            between = bench.dependence.between(earlier.call, source.reads)
            if all(_keeps_all(bench, n) for n in between) and earlier.out_width >= earlier.in_width:
                found.append((name, other))
    return tuple(found)
