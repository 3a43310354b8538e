"""Lists of modules that keep only some of their elements."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mha_lint.targets.stacks import Shortening, lists_in


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(6))
        self.blocks = nn.Sequential(*(nn.Sequential(*(nn.Tanh(),) * 5) for _ in range(5)))
        self.few = nn.ModuleList(nn.Tanh() for _ in range(4))


def test_what_is_kept_goes_on_under_its_own_name_and_is_found_by_its_place() -> None:
    model = Model()
    first, second, last = (model.layers[i] for i in (0, 1, 5))
    Shortening((("layers", 6, (0, 1, 5)),)).of(model)
    assert list(model.layers) == [first, second, last]
    assert (model.layers[0], model.layers[2], model.layers[-1]) == (first, last, last)
    assert list(model.layers[1:]) == [second, last]
    with pytest.raises(IndexError):
        model.layers[3]
    assert [n for n, _ in model.layers.named_parameters()] == [
        f"{i}.{name}" for i in (0, 1, 5) for name in ("weight", "bias")
    ]
    assert type(model.layers).__name__ == "ModuleList"
    assert isinstance(copy.deepcopy(model).layers[2], nn.Linear)


def test_a_sequence_runs_what_is_kept() -> None:
    model = nn.Sequential(nn.Linear(3, 2), *(nn.Linear(2, 2) for _ in range(4)), nn.Linear(2, 5))
    x = torch.randn(1, 3)
    due = model[5](model[1](model[0](x)))
    Shortening((("", 6, (0, 1, 5)),)).of(model)
    assert torch.equal(model(x), due)
    assert list(model._modules) == ["0", "1", "5"]


def test_a_list_of_another_length_is_left_as_it_is() -> None:
    model = Model()
    Shortening((("layers", 7, (0, 1)), ("gone", 6, (0,)), ("few", 4, (3,)))).of(model)
    assert [len(model.layers), len(model.few)] == [6, 1]


def test_lists_within_elements_of_another_are_passed_over() -> None:
    assert dict(lists_in(Model(), 5)) == {
        "layers": [f"layers.{i}" for i in range(6)],
        "blocks": [f"blocks.{i}" for i in range(5)],
    }
    assert dict(lists_in(nn.Sequential(nn.Tanh(), nn.Tanh()), 2)) == {"": ["0", "1"]}
