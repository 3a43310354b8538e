"""Config classes: what is set where their defaults are large, or say nothing."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from mha_lint.targets.infer.configs import small_entries
from mha_lint.targets.infer.scheme import SCHEMES


@dataclass
class Unset:
    n_layer: int = None  # type: ignore[assignment]
    n_head: int = None  # type: ignore[assignment]
    n_embd: int = None  # type: ignore[assignment]
    n_kv_head: int | None = None
    vocab_size: int = -1
    max_batch_size: int = 32
    dropout: float = 0.1


@dataclass
class Small:
    n_embd: int = 32
    n_head: int = 4


def entries(made: type) -> dict[str, str]:
    return small_entries(inspect.signature(made).parameters.values(), SCHEMES[0])


def test_sizes_that_the_caller_has_to_set() -> None:
    assert entries(Unset) == {"n_layer": "2", "n_head": "4", "n_embd": "24", "vocab_size": "29"}


def test_small_defaults_stay() -> None:
    assert entries(Small) == {}
