"""Where the layers of a recording begin, and which of them compute the same."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lint.capture import Recording, record
from mha_lint.sites.alike import Constants, Stretches, products_of_data, stacks_of

X = torch.randn(2, 3, 4)


class Layer(nn.Module):
    mask: Tensor

    def __init__(self, gain: float = 1.0, kept: int = 0) -> None:
        super().__init__()
        self.map, self.gain = nn.Linear(4, 4), gain
        self.register_buffer("mask", torch.arange(3) > kept)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.map(x) * self.gain
        return y.masked_fill(self.mask[:, None], 0.0)


class Model(nn.Module):
    def __init__(self, loop: Callable[[Model, Tensor], object], *layers: Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers or (Layer() for _ in range(4)))
        self.norms = nn.ModuleList(nn.LayerNorm(4) for _ in self.layers)
        self.loop = loop

    def forward(self, x: Tensor) -> object:
        return self.loop(self, x)


def recorded(model: Model) -> tuple[Recording, list[list[str]]]:
    recording = record(model.eval(), (X,), {})
    names = ("layers", "norms")
    return recording, [[f"{n}.{i}" for i in range(len(model.layers))] for n in names]


def plain(model: Model, x: Tensor) -> object:
    x = x.exp()
    for layer, norm in zip(model.layers, model.norms, strict=True):
        x = x + layer(norm(x))
    return x.sin()


def kinds(model: Model) -> list[int]:
    """Return for each row the first that is alike."""
    recording, lists = recorded(model)
    (stack,) = stacks_of(recording, lists)
    keys = list(Stretches(recording, [stack], Constants()).alike(stack).values())
    return [keys.index(key) for key in keys]


def test_lists_that_are_gone_through_together_are_one_stack() -> None:
    recording, lists = recorded(Model(plain))
    assert stacks_of(recording, lists) == [tuple((f"layers.{i}", f"norms.{i}") for i in range(4))]


def test_lists_one_behind_the_other_are_two() -> None:
    def apart(model: Model, x: Tensor) -> object:
        for layer in model.layers:
            x = layer(x)
        for norm in model.norms:
            x = norm(x)
        return x

    recording, lists = recorded(Model(apart))
    assert stacks_of(recording, lists) == [
        tuple((f"layers.{i}",) for i in range(4)),
        tuple((f"norms.{i}",) for i in range(4)),
    ]


def test_a_list_that_is_not_gone_through_in_order_is_no_stack() -> None:
    def mixed(model: Model, x: Tensor) -> object:
        for place in (0, 2, 1, 3):
            x = model.layers[place](x)
        for norm in model.norms[:3]:
            x = norm(x)
        return x

    assert stacks_of(*recorded(Model(mixed))) == []


def test_a_row_is_told_by_what_it_computes_and_reads() -> None:
    assert kinds(Model(plain)) == [0, 1, 1, 1]
    assert kinds(Model(plain, Layer(), Layer(), Layer(2.0), Layer())) == [0, 1, 2, 1]
    assert kinds(Model(plain, Layer(), Layer(), Layer(kept=1), Layer())) == [0, 1, 2, 1]


def test_a_row_that_reads_two_back_is_another_one() -> None:
    def skipping(model: Model, x: Tensor) -> object:
        seen = [x]
        for i, layer in enumerate(model.layers):
            seen.append(layer(seen[-2] if i == 3 else seen[-1]))
        return seen[-1]

    recording, lists = recorded(Model(skipping, *(Layer() for _ in range(6))))
    (stack,) = stacks_of(recording, lists[:1])
    keys = list(Stretches(recording, [stack], Constants()).alike(stack).values())
    assert [keys.index(key) for key in keys] == [0, 1, 1, 3, 1, 1]


def test_what_follows_is_no_part_of_the_last_row() -> None:
    recording, lists = recorded(Model(plain))
    (stack,) = stacks_of(recording, lists)
    stretches = Stretches(recording, [stack], Constants())
    assert stretches.keys[stack[3]] != stretches.keys[stack[2]]
    assert [n.meta["op"] for n in stretches.nodes(stack[3])][-2:] == ["add", "sin"]
    assert not stretches.reads_many()


def test_reading_the_results_of_all_rows_is_told() -> None:
    def together(model: Model, x: Tensor) -> object:
        seen = []
        for layer in model.layers:
            x = layer(x)
            seen.append(x)
        return torch.stack(seen)

    recording, lists = recorded(Model(together))
    (stack,) = stacks_of(recording, lists[:1])
    assert Stretches(recording, [stack], Constants()).reads_many()


def test_what_each_row_returns_belongs_to_it() -> None:
    def with_cache(model: Model, x: Tensor) -> object:
        kept = []
        for i, (layer, norm) in enumerate(zip(model.layers, model.norms, strict=True)):
            y = norm(x)
            x = x + layer(y)
            if i != 2:
                kept.append(y)
        return x.sin(), kept, x.cos()

    assert kinds(Model(with_cache, *(Layer() for _ in range(6)))) == [0, 1, 2, 1, 1, 1]


def test_a_row_that_reads_only_what_was_there_before_all_is_no_further_layer() -> None:
    def beside(model: Model, x: Tensor) -> object:
        out = x
        for layer in model.layers:
            y = layer(x)
            out = out + y @ y.mT @ y
        return out

    def behind(model: Model, x: Tensor) -> object:
        for layer in model.layers:
            y = layer(x)
            x = x + y @ y.mT @ y
        return x

    told = []
    for loop in (beside, behind):
        recording, lists = recorded(Model(loop))
        (stack,) = stacks_of(recording, lists[:1])
        stretches = Stretches(recording, [stack], Constants())
        told.append([stretches.follows(row, products_of_data(recording)) for row in stack])
    assert told == [[False] * 4, [False, True, True, True]]


def test_equal_constants_have_one_number() -> None:
    constants = Constants()
    one, same = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan])
    assert constants.number(one) == constants.number(same)
    assert constants.number(one) != constants.number(torch.tensor([2.0, torch.nan]))
    assert constants.number(torch.ones(2)) != constants.number(torch.ones(2, dtype=torch.float64))
    assert constants.number(torch.tensor([True])) == constants.number(torch.tensor([True]))


def test_a_product_with_a_weight_is_none_of_data() -> None:
    def squared(model: Model, x: Tensor) -> object:
        (layer, *_) = model.layers
        return layer(x) @ x.mT @ next(layer.parameters())[:3]

    recording, _ = recorded(Model(squared))
    assert [n.meta["op"] for n in products_of_data(recording)] == ["matmul"]
