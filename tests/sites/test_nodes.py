"""Sets of nodes as bits: what they answer, and that a deep model costs no more than its depth."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from mha_lint.capture import record
from mha_lint.sites import dependence
from mha_lint.sites.dependence import Dependence, _closure
from mha_lint.sites.nodes import Nodes, Numbering, numbers_in


def numbered(count: int) -> tuple[list[Node], Numbering]:
    graph = Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(count)]
    return nodes, Numbering(nodes)


def some(numbering: Numbering, *numbers: int) -> Nodes:
    return Nodes(numbering, sum(1 << n for n in numbers))


def test_the_places_of_bits() -> None:
    assert list(numbers_in(0)) == []
    assert list(numbers_in(0b1011_0000_0001)) == [0, 8, 9, 11]


def test_it_iterates_in_recorded_order_and_back() -> None:
    nodes, numbering = numbered(20)
    held = some(numbering, 17, 3, 4)
    assert list(held) == [nodes[3], nodes[4], nodes[17]]
    assert list(reversed(held)) == [nodes[17], nodes[4], nodes[3]]
    assert (len(held), bool(held), bool(some(numbering))) == (3, True, False)
    assert nodes[4] in held
    assert nodes[5] not in held
    name: object = "x4"
    assert name not in held


def test_two_of_one_recording_meet_as_bits() -> None:
    nodes, numbering = numbered(12)
    one, other = some(numbering, 1, 2, 11), some(numbering, 2, 5)
    assert list(one & other) == [nodes[2]]
    assert list(one | other) == [nodes[1], nodes[2], nodes[5], nodes[11]]
    assert list(one - other) == [nodes[1], nodes[11]]


def test_a_plain_set_stays_one() -> None:
    nodes, numbering = numbered(6)
    (stranger,), _ = numbered(1)
    held, plain = some(numbering, 1, 2), {nodes[2], nodes[3], stranger}
    assert list(held & plain) == [nodes[2]]
    assert list(held - plain) == [nodes[1]]
    assert type(plain & held) is set
    assert plain & held == {nodes[2]}
    assert plain - held == {nodes[3], stranger}
    assert plain | held == {nodes[1], nodes[2], nodes[3], stranger}
    assert type(frozenset(plain) & held) is frozenset
    same: object = {nodes[1], nodes[2]}
    assert held == same
    assert held <= {nodes[0], nodes[1], nodes[2]}


class Deep(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(4, 4) for _ in range(depth)])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.maps:
            x = x + torch.relu(layer(x))
        return x * y


def test_it_answers_as_a_walk_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(Deep(3), (torch.randn(2, 4), torch.randn(2, 4)), {})
    quick, walked = Dependence(made), Dependence(made)
    monkeypatch.setattr(dependence, "MOST", 0)
    assert len(quick.nodes) > 10
    for node in quick.nodes:
        above = _closure([node], quick._operands.__getitem__)
        below = _closure([node], quick.users)
        for one in (quick, walked):
            monkeypatch.setattr(dependence, "MOST", 10_000 if one is quick else 0)
            assert set(one.ancestors([node])) == above
            assert set(one.descendants([node])) == below
            assert one.parameters(node) == {
                n.meta["parameter"] for n in above if n.meta.get("parameter")
            }
            assert one.between(quick.nodes[0], node) == sorted(
                (set(one.descendants([quick.nodes[0]])) & above) - {quick.nodes[0]},
                key=one.order.__getitem__,
            )


def test_the_inputs_of_a_node() -> None:
    made = record(Deep(2), (torch.randn(2, 4), torch.randn(2, 4)), {})
    found = Dependence(made)
    (out,) = made.outputs
    assert found.inputs_of(out) == {"x", "y"}
    assert found.inputs_of(out.all_input_nodes[0]) == {"x"}
