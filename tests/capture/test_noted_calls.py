"""Calls are noted while the user's code runs, and become nodes later: as they were when called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mha_lint.capture import record
from mha_lint.capture.entries import entry_of

TENSOR: Any = torch.Tensor  # the stubs give its properties other types


class Pieces(nn.Module):
    """Goes on to change the list that it has handed over."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x * 2]
        first = torch.cat(parts, -1)
        parts.append(first)
        index = [0, 1]
        picked = x[:, index]
        index[0] = 1
        return torch.cat([first, torch.cat(parts, -1), picked[:, :1].expand_as(first)], -1)


class Overwritten(nn.Module):
    """Changes a value that an earlier call has read."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 0
        total = y.sum(-1, keepdim=True)
        y.mul_(3)
        return y + total


class Attends(nn.Module):
    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.late = late

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x.unsqueeze(1)
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        if self.late:
            y.mul_(2)
        return y.squeeze(1) + x


def equal_on_fresh_inputs(module: nn.Module, x: torch.Tensor) -> Any:
    recording = record(module, (x,), {})
    assert recording.faithful.ok, recording.faithful.why
    return recording


@pytest.mark.parametrize(
    "module", [Pieces(), Overwritten(), Attends(late=False), Attends(late=True)]
)
def test_arguments_are_seen_as_they_were(module: nn.Module) -> None:
    recording = equal_on_fresh_inputs(module, torch.randn(2, 5, 4))
    expected = module(recording.inputs[0].clone())
    assert torch.allclose(recording.values[recording.outputs[0]], expected, atol=1e-6)


@pytest.mark.parametrize("late", [False, True])
def test_parts_of_attention_stand_at_its_call(*, late: bool) -> None:
    recording = equal_on_fresh_inputs(Attends(late=late), torch.randn(2, 5, 4))
    lowered = [n for n in recording.graph.nodes if "lowered" in n.meta]
    ops = [n.meta["op"] for n in lowered]
    assert ops[:4] == ["transpose", "matmul", "mul", "ones"]
    assert ops[-2:] == ["softmax", "matmul"]
    assert {n.meta["stack"][-1].span.line for n in lowered} == {
        Attends.forward.__code__.co_firstlineno + 2
    }
    assert {n.meta["lowered"] for n in lowered} == {"scaled_dot_product_attention"}
    after = [
        n.meta["op"] for n in recording.graph.nodes if n.meta["op"] in ("squeeze", "add", "mul")
    ]
    assert after == ["mul", *["mul"] * late, "squeeze", "add"]


def test_what_the_call_returned_is_kept_as_its_value() -> None:
    recording = record(Attends(late=False), (torch.randn(2, 5, 4),), {})
    x = recording.inputs[0].unsqueeze(1)
    context = next(n for n in reversed(recording.graph.nodes) if "lowered" in n.meta)
    assert torch.equal(
        recording.values[context], F.scaled_dot_product_attention(x, x, x, is_causal=True)
    )


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        (torch.Tensor.size, {"passed"}),
        (TENSOR.shape.__get__, {"passed", "getter"}),
        (TENSOR.T.__get__, {"getter"}),
        (torch.Tensor.backward, {"below"}),
        (torch.einsum, {"unfolded"}),
        (F.scaled_dot_product_attention, {"unfolded"}),
        (torch.Tensor.item, {"escape"}),
        (torch.softmax, {"softmax"}),
        (torch.dropout, {"aside"}),
        (torch.empty, {"aside"}),
        (torch.Tensor.__rsub__, {"swapped"}),
        (torch.matmul, set()),
    ],
)
def test_what_is_known_before_a_call(function: Any, fields: set[str]) -> None:
    entry = entry_of(function, frozenset())
    flags = ("swapped", "getter", "escape", "passed", "below", "unfolded", "softmax", "aside")
    assert {name for name in flags if getattr(entry, name)} == fields
    assert not entry.plain
    entry.trust()
    assert entry.plain is (not fields or fields in ({"getter"}, {"swapped"}))


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        (torch.Tensor.add_, "first"),
        (torch.Tensor.__setitem__, "first"),
        (torch.Tensor.transpose_, "metadata"),
        (TENSOR.data.__set__, "data"),
        (torch.batch_norm, "statistics"),
        (torch.ops.aten.add_.Tensor, "schema"),
        (torch.ops.aten.add.Tensor, ""),
        (torch.add, ""),
    ],
)
def test_what_a_call_changes(function: Any, changes: str) -> None:
    assert entry_of(function, frozenset()).changes == changes
    if not changes and function is torch.add:
        assert entry_of(function, frozenset([function])).changes == "any"
