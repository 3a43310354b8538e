"""Tests of mha_lint.targets.infer.signatures."""

from __future__ import annotations

from typing import Any

from torch import nn

from mha_lint.targets.infer.bodies import constructor_evidence
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.infer.vocabulary import Role


class Root(nn.Module):
    def __init__(self, wide: int, deep: int, *, rows: int, spread: float = 0.1) -> None:
        super().__init__()
        self.map = nn.Linear(wide, wide)
        self.table = nn.Embedding(rows, wide)
        self.layers = range(deep)
        self.spread = spread


class Head(Root):
    def __init__(self, size: int, **more: Any) -> None:
        super().__init__(size, **more)


class Named(Head):
    def __init__(self, heads: int, **kwargs: Any) -> None:
        super().__init__(deep=2, **kwargs)
        self.heads = heads


class Closed(Root):
    def __init__(self, size: int, **options: Any) -> None:
        super().__init__(size, 2, rows=3)
        self.options = options


def _names(made: type) -> list[str]:
    return [p.name for p in parameters_of(made)]


def test_what_is_passed_on_to_the_base() -> None:
    assert _names(Head) == ["size", "deep", "rows"]
    assert _names(Named) == ["heads", "size", "rows"]
    assert _names(Closed) == ["size"]


def test_what_the_base_does_with_it() -> None:
    found = constructor_evidence(Named)
    assert found["rows"].role() is Role.VOCABULARY
    assert found["size"].role() is Role.WIDTH
