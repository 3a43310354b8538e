"""Weights among the arguments of a function count as its parameters; shared keys and values do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mha_lint.facts.bench import Bench

Find = Callable[..., Bench]
X = torch.randn(2, 7, 12)


def plain(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, bias: Tensor) -> Tensor:
    n, t, _ = x.shape
    q, k, v = ((x @ w).view(n, t, 3, -1).transpose(1, 2) for w in (a, b.T, c))
    context = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)
    return context @ d + bias


def by_head(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    q, k, v = (torch.einsum("btm,hmd->bhtd", x, w) for w in (a, b, c))
    return torch.einsum("bhtd,hdm->btm", (q @ k.mT).softmax(-1) @ v, d)


def table(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.einsum("btd,sd->bts", x, keys).softmax(-1) @ values


def given(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "args", "data"),
    [
        (plain, (X, *[torch.randn(12, 12) for _ in range(4)], torch.randn(12)), ("x",)),
        (by_head, (X, *[torch.randn(3, 12, 4) for _ in range(3)], torch.randn(3, 4, 12)), ("x",)),
        (table, (X, torch.randn(9, 12), torch.randn(9, 12)), ("x", "keys", "values")),
        (given, (X, torch.randn(2, 9, 12), torch.randn(2, 9, 12)), ("q", "k", "v")),
        (given, (X, torch.randn(9, 12), torch.randn(9, 12)), ("q", "k", "v")),
    ],
)
def test_which_arguments_are_weights(
    function: Callable[..., Tensor], args: tuple[Tensor, ...], data: tuple[str, ...], found: Find
) -> None:
    bench = found(function, *args)
    assert bench.recording.input_names == data
    assert len(bench.recording.inputs) == len(bench.recording.placeholders) == len(data)
    (site,) = bench.sites
    assert site.q is not None and site.q.source is not None
    assert site.q.source.kind == ("projection" if data == ("x",) else "input")
    assert bool(bench.recording.parameters) == (data == ("x",))


def test_the_output_stays_the_same(found: Find) -> None:
    args = (X, *[torch.randn(12, 12) for _ in range(4)], torch.randn(12))
    recording = found(plain, *args).recording
    assert torch.allclose(recording.values[recording.outputs[0]], plain(*args), atol=1e-5)
