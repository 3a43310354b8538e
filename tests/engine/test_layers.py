"""Which layers of a model are alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

from torch import nn

from mha_lint.engine.layers import Layers, in_order, kinds


class Layer(nn.Module):
    def __init__(self, index: int, width: int, window: int | None) -> None:
        super().__init__()
        self.index, self.window = index, window
        self.attention = nn.Linear(width, width)


class Model(nn.Module):
    def __init__(self, *layers: tuple[int, int | None]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(i, *layer) for i, layer in enumerate(layers))


WHOLE = Model((8, None), (8, 4), (8, None), (8, 4), (8, None), (6, 4))


def test_layers_of_one_kind_are_told_by_their_attributes_and_sizes() -> None:
    layers = Layers(WHOLE, Model((8, None), (8, 4), (6, 4)))
    assert layers.alike(["layers.0"]) == {"layers.0", "layers.2", "layers.4"}
    assert layers.alike(["layers.1"]) == {"layers.1", "layers.3"}
    assert layers.alike(["layers.2"]) == {"layers.5"}
    assert layers.alike(["layers.1", "layers.2"]) == {"layers.1", "layers.3", "layers.5"}


def test_what_is_in_a_layer_is_told_by_itself() -> None:
    layers = Layers(WHOLE, Model((8, 4), (6, 4)))
    assert layers.alike(["layers.0.attention"]) == {f"layers.{i}.attention" for i in range(5)}
    assert layers.alike(["layers.1.attention"]) == {"layers.5.attention"}


def test_nothing_is_told_of_a_layer_that_the_whole_lacks() -> None:
    layers = Layers(WHOLE, Model((8, 3), (8, 4)))
    assert layers.alike(["layers.0"]) is None
    assert layers.alike(["layers.1", "layers.0"]) is None


def test_layer_2_stands_before_layer_10() -> None:
    assert in_order({"a.10.b", "a.2.b", "a.2.a"}) == ("a.2.a", "a.2.b", "a.10.b")


def test_layers_of_one_model_are_told_by_all_that_they_hold() -> None:
    layers = [Layer(i, 8, None) for i in range(6)]
    vars(layers[2])["rope"] = [1.0, 2.0]
    layers[3].register_forward_hook(lambda *_: None)
    vars(layers[4])["rope"] = [1.0, 2.0]
    vars(layers[5])["rope"] = [1.0, 3.0]
    told = list(kinds({f"layers.{i}": layer for i, layer in enumerate(layers)}).values())
    assert [told.index(one) for one in told] == [0, 0, 2, 3, 2, 5]


def test_rates_between_none_and_all_are_one_kind() -> None:
    layers = [nn.Dropout(p) for p in (0.0, 0.1, 0.2, 1.0)]
    told = list(kinds({str(i): layer for i, layer in enumerate(layers)}).values())
    assert [told.index(one) for one in told] == [0, 1, 1, 3]


def test_what_is_held_privately_or_in_objects_counts() -> None:
    def scaled(by: float) -> Callable[[float], float]:
        return lambda x: x * by

    held: list[list[tuple[str, object]]] = [
        [],
        [("_window", 4)],
        [("config", SimpleNamespace(window=4))],
        [("config", SimpleNamespace(window=5))],
        [("scale", scaled(2.0))],
        [("scale", scaled(3.0))],
        [("scale", functools.partial(max, 1))],
        [("scale", functools.partial(max, 2))],
    ]
    layers = [Layer(i, 8, None) for i in range(8)]
    for layer, more in zip(layers, held, strict=True):
        vars(layer).update(dict(more))
    told = kinds({f"layers.{i}": layer for i, layer in enumerate(layers)})
    assert len(set(told.values())) == 8
    own = [{"a": Layer(0, 8, None)} for _ in range(2)]
    for one in own:
        vars(one["a"]).update(config=SimpleNamespace(window=4), scale=scaled(2.0))
    assert kinds(dict(own[0])) == kinds(dict(own[1]))


def test_frozen_and_empty_weights_count() -> None:
    layers = [nn.Linear(4, 4) for _ in range(4)]
    layers[1].weight.requires_grad_(False)
    nn.init.zeros_(layers[2].weight)
    told = list(kinds({str(i): layer for i, layer in enumerate(layers)}).values())
    assert [told.index(one) for one in told] == [0, 1, 2, 0]
