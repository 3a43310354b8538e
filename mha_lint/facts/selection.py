"""Elements that the data itself puts in their places: sorted by a hash, picked as the best."""

from __future__ import annotations

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_tensor, operands


def placed_by_data(bench: Bench, start: Node, end: Node) -> bool:
    """Return whether indices made from the inputs pick or place elements between two nodes.

    Where such elements land is another thing for each input, so one look at it proves nothing.
    """
    return any(
        _is_index(bench, operand)
        for node in bench.dependence.between(start, end)
        for operand in operands(node)
    )


def _is_index(bench: Bench, node: Node) -> bool:
    if not is_tensor(bench.recording, node) or not bench.dependence.on_data(node):
        return False
    value = bench.recording.values[node]
    return not value.is_floating_point() and not value.is_complex()
