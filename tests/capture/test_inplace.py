"""Changes in place become values: nothing is lost to dead-code removal, and views follow."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from mha_lint.capture import Recording, Replay, record

Recorded = Callable[..., Recording]


def scale_through_view(x: Any) -> Any:
    a = x @ x.mT
    a[:, torch.ones(a.shape[-2:]).triu(1).bool()] = -1e9
    b = a.view(a.shape)
    b.mul_(0.5)
    return a.softmax(-1) @ x


def mask_of_base_seen_in_view(x: Any) -> Any:
    a = x @ x.mT
    view = a[:, 1:, ::2]
    a.masked_fill_(a > 1, 0.0)
    return view + 1


def chain_of_views(x: Any) -> Any:
    a = x.clone()
    b = a.transpose(1, 2)
    c = b[:, ::2]
    c += 1
    b *= 2
    return a + b.mT + c.sum()


def data_attribute(x: Any) -> Any:
    a = x * 1
    a.data *= 3
    b = a * 1
    b.data = x.cos()
    return a + b


def out_argument(x: Any) -> Any:
    a = torch.zeros(x.shape)
    torch.add(x, 1, out=a)
    torch.mul(a, 2, out=a)
    return a


def out_into_slice(x: Any) -> Any:
    a = torch.zeros(2, *x.shape)
    torch.exp(x, out=a[1])
    return a


def two_outs(x: Any) -> Any:
    values, places = torch.empty(2, 4), torch.empty(2, 4, dtype=torch.long)
    torch.max(x, 1, out=(values, places))
    return values * places


def shape_in_place(x: Any) -> Any:
    a = x * 1
    a.unsqueeze_(0)
    a.transpose_(-1, -2)
    a += 1
    return a


def loop_over_slots(x: Any) -> Any:
    out = torch.empty(3, *x.shape)
    for i in range(3):
        out[i] = x * i
        out[i].add_(1)
    return out.sum(0)


def expanded_mask(x: Any) -> Any:
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask.fill_(True).triu_(1)
    return (x @ x.mT).masked_fill(mask, 0.0)


def scatter(x: Any) -> Any:
    top, where = x.topk(2, -1)
    return torch.full_like(x, -9.0).scatter_(-1, where, top).softmax(-1)


def swap(x: Any) -> Any:
    a = x.clone()
    a[0], a[1] = a[1].clone(), a[0].clone()
    return a


def aliased_augmented(x: Any) -> Any:
    a = x.clone()
    a.add_(a)
    a[:, 0].sub_(a[:, 1])
    return a


def split_parts(x: Any) -> Any:
    a = x * 1
    first, second = a.chunk(2, -1)
    first.neg_()
    second.zero_()
    return a


def masked_assignment(x: Any) -> Any:
    a = x * 1
    a[a < 0] = 0.0
    a[..., 0][:, 1] = 7.0
    return a


def numbers_from_index(x: Any) -> Any:
    a = x * 1
    a[torch.tensor([0, 1]), :, [1, 0]] += 5
    return a


def strided(x: Any) -> Any:
    a = x.contiguous() * 1
    windows = a.as_strided((2, 2, 2), (16, 4, 1))
    windows.mul_(2)
    return a + a.as_strided((2, 4, 4), (16, 1, 4))


CASES = [
    scale_through_view, mask_of_base_seen_in_view, chain_of_views, data_attribute, out_argument,
    out_into_slice, two_outs, shape_in_place, loop_over_slots, expanded_mask, scatter, swap,
    aliased_augmented, split_parts, masked_assignment, numbers_from_index, strided,
]  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_functional_graph(function: Callable[..., Any], recorded: Recorded) -> None:
    x, fresh = torch.randn(2, 4, 4), torch.randn(2, 4, 4)
    recording = recorded(function, x)
    want, got = function(fresh.clone()), Replay(recording, inputs=[fresh], dtype=None)
    torch.testing.assert_close(got.base(recording.outputs[0]), want)
    # Values of a later run may have any strides.
    odd = fresh.mT.contiguous().mT
    again = Replay(recording, inputs=[odd], dtype=None)
    torch.testing.assert_close(again.base(recording.outputs[0]), want)
    recording.graph.eliminate_dead_code()
    torch.testing.assert_close(recording.graph_module(fresh)[0], want)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_values_are_those_of_their_own_time(function: Callable[..., Any]) -> None:
    recording = record(function, (torch.randn(2, 4, 4),), {})
    replay = Replay(recording, dtype=None)
    for node in recording.graph.nodes:
        if node.op != "output":
            torch.testing.assert_close(replay.base(node), recording.values[node], equal_nan=True)


def test_the_mask_is_on_the_way_back_from_the_softmax(recorded: Recorded, only: Any) -> None:
    recording = recorded(scale_through_view, torch.randn(2, 4, 4))
    node, seen = only(recording, "softmax").args[0], []
    while isinstance(node, fx.Node) and node.op == "call_function":
        seen.append(node.meta["op"])
        node = node.args[0]
    assert seen == ["mul", "view", "setitem", "matmul"]


def test_changed_input_keeps_the_callers_tensor(recorded: Recorded) -> None:
    def forward(x: Any) -> Any:
        x.mul_(0.5)
        return x + 1

    x = torch.randn(3)
    before = x.clone()
    recording = recorded(forward, x)
    assert torch.equal(x, before)
    assert torch.equal(recording.inputs[0], before)
    assert torch.equal(recording.values[recording.placeholders[0]], before)


def test_batch_norm_in_training_changes_its_buffers(recorded: Recorded) -> None:
    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            return y + self.norm.running_mean

    module = Norm().train()
    recording = recorded(module, torch.randn(8, 4))
    assert torch.equal(module.norm.running_mean, torch.zeros(4))  # type: ignore[arg-type]
    mean = next(n for n in recording.graph.nodes if n.meta.get("buffer") == "norm.running_mean")
    assert torch.equal(recording.values[mean], torch.zeros(4))


OPERATIONS: list[Callable[[torch.Tensor, random.Random], Any]] = [
    lambda t, r: t.mul_(r.uniform(0.5, 2)),
    lambda t, r: t.add_(r.uniform(-1, 1)),
    lambda t, r: t.clamp_(min=r.uniform(-1, 0)),
    lambda t, r: t.copy_(t.flip(0)),
    lambda t, r: t.sin_(),
]
VIEWS: list[Callable[[torch.Tensor, random.Random], torch.Tensor]] = [
    lambda t, r: t.transpose(0, -1),
    lambda t, r: t[::2],
    lambda t, r: t[1:] if t.shape[0] > 1 else t,
    lambda t, r: t[..., :2],
    lambda t, r: t.view(t.shape),
    lambda t, r: t.unsqueeze(0),
    lambda t, r: t.diagonal(0, 0, 1) if t.dim() > 1 else t,
    lambda t, r: t.movedim(0, -1),
    lambda t, r: t.detach(),
    lambda t, r: t.unfold(0, 2, 2) if t.shape[0] > 1 else t,
]


def random_program(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that views and changes one storage in a random way."""

    def run(x: torch.Tensor) -> torch.Tensor:
        draw = random.Random(seed)
        live = [x * 1]
        for _ in range(12):
            t = draw.choice(live)
            if draw.random() < 0.5:
                live.append(draw.choice(VIEWS)(t, draw))
            else:
                draw.choice(OPERATIONS)(t, draw)
        total = torch.zeros(())
        for place, t in enumerate(live):
            total = total + t.sum() * (place + 1)
        return total + live[0]

    return run


@pytest.mark.parametrize("seed", range(60))
def test_random_views_and_changes(seed: int, recorded: Recorded) -> None:
    program = random_program(seed)
    recording = recorded(program, torch.randn(4, 4, 4))
    fresh = torch.randn(4, 4, 4, dtype=torch.float64)
    got = Replay(recording, inputs=[fresh]).base(recording.outputs[0])
    torch.testing.assert_close(got, program(fresh), rtol=1e-12, atol=1e-12)


def test_what_is_changed_stays_laid_out_as_it_was() -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("qbhd,kbhd->bqhk", x.transpose(0, 1), x.transpose(0, 1))
        scores *= 0.5
        return torch.nn.functional.dropout(scores, 0.5)

    recording = record(dropped, (torch.randn(2, 9, 4, 6),), {})
    assert recording.faithful.ok  # dropout draws its numbers in the order of memory
    changed = next(n for n in recording.graph.nodes if n.meta["op"] == "mul")
    assert recording.values[changed].stride() == (324, 9, 81, 1)
    assert Replay(recording, dtype=None).base(changed).stride() == (324, 9, 81, 1)
