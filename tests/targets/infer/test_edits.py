"""What is changed after an error."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mha_lint.targets.infer.construct import Constructor
from mha_lint.targets.infer.edits import call_edits, other_configs
from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.state import State


class Flat(nn.Module):
    def __init__(self, dim: int, rows: int) -> None:
        super().__init__()
        self.map = nn.Linear(dim * rows, dim)

    def forward(self, x: Any) -> Any:
        return self.map(x.flatten(1))


def arguments_after(message: str, *, edited: int | None, given: dict[str, str]) -> set[str]:
    """Return the values of ``dim`` that are tried after an error that says `message`."""
    constructor = Constructor(Flat, "Flat", {})
    guess = InputGuess("float", ("B", "T", "D"))
    if edited is not None:
        guess = guess.with_size(2, edited)
    state = State(SCHEMES[0], inputs=(("x", guess),))
    for name, text in given.items():
        state = state.with_argument(name, text)
    inputs = Inputs(Flat(24, 2), SCHEMES[0])
    edits = call_edits(constructor, state, RuntimeError(message), inputs)
    return {dict(s.arguments).get("dim", "") for _, s in edits} - {""}


def test_a_width_takes_a_number_of_the_error() -> None:
    assert "48" in arguments_after("got 24, expected 48", edited=None, given={})


def test_no_multiple_of_a_number_that_was_taken_before() -> None:
    found = arguments_after("got 24, expected 1176", edited=168, given={})
    assert "1176" not in found


def test_an_argument_takes_a_number_once() -> None:
    found = arguments_after("got 168, expected 315", edited=None, given={"dim": "168"})
    assert "315" not in found


CONFIG = {"dim": 4096}


class Large(nn.Module):
    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.map = nn.Linear(cfg["dim"], cfg["dim"])


def test_a_made_up_config_after_one_of_the_user_that_takes_too_long() -> None:
    constructor = Constructor(Large, "Large", {"CONFIG": CONFIG})
    state = State(SCHEMES[0])
    assert constructor.first(SCHEMES[0]) == {"cfg": "CONFIG"}
    (other,) = other_configs(constructor, state)
    assert dict(other.arguments) == {"cfg": "{'dim': 24}"}
    assert list(other_configs(constructor, other)) == []


class Asks(nn.Module):
    def forward(self, *args: Any, context: Any = None) -> Any:
        (x,) = args
        assert context is None, "no context, please"
        return x


def test_positional_arguments_without_a_name_come_first() -> None:
    assert Inputs(Asks(), SCHEMES[0]).required() == []


class Together(nn.Module):
    def forward(self, queries: Any, keys: Any, values: Any, attn_mask: Any) -> Any:
        b, t, h, e = queries.shape
        scores = torch.einsum("blhe,bshe->bhls", queries, keys) / e**0.5
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask.mask, -1e9)
        return torch.einsum("bhls,bshd->blhd", scores.softmax(-1), values).view(b, t, h * e)


def test_keys_have_the_axes_that_queries_are_unpacked_into() -> None:
    inputs = Inputs(Together(), SCHEMES[0])
    assert inputs.options("queries")[0].axes == ("B", "T", "h", "d")
    assert inputs.options("keys")[0].axes == ("B", "S", "h", "d")
    assert inputs.options("attn_mask")[0].text == "None"
