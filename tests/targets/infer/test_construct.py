"""Guesses for counts of key/value heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.targets.infer.construct import Constructor
from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.vocabulary import Role


class Divides(nn.Module):
    def __init__(self, d: int, h: int, g: int) -> None:
        super().__init__()
        self.h, self.g, self.dh = h, g, d // h
        self.k = nn.Linear(d, g * self.dh)

    def forward(self, x: Any) -> Any:
        return self.k(x).view(*x.shape[:2], self.g, self.dh).repeat(1, 1, self.h // self.g, 1)


class Splits(nn.Module):
    def __init__(self, d: int, h: int, few: int) -> None:
        super().__init__()
        self.h, self.few, self.dh = h, few, d // h
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, few * self.dh)

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, self.dh)
        return q, self.k(x).view(b, t, self.few, self.dh)


class Optional(nn.Module):
    def __init__(self, dim: int, n_heads: int, n_kv_heads: int | None = None) -> None:
        super().__init__()
        self.k = nn.Linear(dim, (n_kv_heads or n_heads) * (dim // n_heads))


class Alone(nn.Module):
    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.h, self.dh = h, d // h
        self.q = nn.Linear(d, d)

    def forward(self, x: Any) -> Any:
        return self.q(x).view(*x.shape[:2], self.h, self.dh)


@pytest.mark.parametrize(
    ("made", "name", "options"),
    [
        (Divides, "g", ["2", "4", "1"]),
        (Splits, "few", ["2", "4", "1"]),
        (Optional, "n_kv_heads", ["2", "None"]),
    ],
)
def test_fewer_key_heads_than_query_heads(made: type, name: str, options: list[str]) -> None:
    guess = Constructor(made, made.__name__, {}).guesses(SCHEMES[0])[name]
    assert (guess.role, guess.options) == (Role.KV_HEADS, options)


@pytest.mark.parametrize("made", [Divides, Splits, Alone])
def test_query_heads(made: type) -> None:
    guess = Constructor(made, made.__name__, {}).guesses(SCHEMES[0])["h"]
    assert (guess.role, guess.options) == (Role.HEADS, ["4", "1"])


class Chain(nn.Module):
    def __init__(self, d: int, hq: int, hkv: int) -> None:
        super().__init__()
        self.hkv, self.g, self.e = hkv, hq // hkv, d // hq
        self.q, self.kv = nn.Linear(d, d), nn.Linear(d, 2 * hkv * self.e)

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        return self.q(x).view(b, t, self.hkv, self.g, self.e), self.kv(x)


def test_a_number_that_divides_the_width_and_is_divided_counts_heads() -> None:
    guesses = Constructor(Chain, "Chain", {}).guesses(SCHEMES[0])
    assert guesses["hq"].role is Role.HEADS
    assert guesses["hq"].options == ["4", "1"]
    assert guesses["hkv"].role is Role.KV_HEADS


class Table(nn.Module):
    def __init__(self, d: int, a: int) -> None:
        super().__init__()
        grid = torch.stack(torch.meshgrid(torch.arange(a), torch.arange(a), indexing="ij"))
        self.register_buffer("places", grid.flatten(1))


def test_the_side_of_a_grid_of_places_stays_small() -> None:
    guess = Constructor(Table, "Table", {}).guesses(SCHEMES[0])["a"]
    assert (guess.role, guess.options[0]) == (Role.WINDOW, "3")


class Nested(nn.Module):
    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.total = cfg["angles"]["factor"] / 2 + cfg["dim"]


def test_an_entry_of_an_entry_that_is_only_reckoned_with() -> None:
    guess = Constructor(Nested, "Nested", {}).guesses(SCHEMES[0])["cfg"]
    assert "'angles': {'factor': " in guess.options[0]
