"""Guesses for counts of key/value heads."""

from __future__ import annotations

from typing import Any

import pytest
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
