"""Names and places of dropout rates, and constructions with other rates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mha_lint.facts.rates import (
    is_for_attention,
    is_for_others,
    keeps,
    off_by_default,
    rates_of,
    stored_at,
    unnamed_rates,
    with_rates,
)
from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.live import live_subject, take
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

TEXT = """\
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Cfg:
    dim: int = 8
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.2


@dataclass
class Whole:
    dim: int = 8
    dropout: float = 0.2
    attention_dropout: float = 0.0
    memory_attention_dropout: float = 0.1


class Beside(nn.Module):
    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.config, self.rate = config, dropout
        self.lin = nn.Linear(config.dim, config.dim)

    def forward(self, x):
        return self.lin(x)


class Plain(nn.Module):
    def __init__(self, dim, heads, attn_drop=0.1, p=0.0, keep_prob=0.9, learning_rate=0.01,
                 drop_path=0.2, causal=False):
        super().__init__()
        self.rate = attn_drop
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        return self.lin(x)


class Configured(nn.Module):
    def __init__(self, cfg, dropout=0.3):
        super().__init__()
        self.drop = nn.Dropout(cfg.attn_pdrop)
        self.lin = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x):
        return self.lin(x)
"""


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    def run(build: str | None, name: str = "") -> Subject:
        file = tmp_path / "rates.py"
        file.write_text(TEXT)
        call = "torch.randn(2, 3, 8)" if build is not None else None
        cls = name or (build or "").partition("(")[0]
        spec = TargetSpec(text="rates.py", path=str(file), qualname=cls, build=build, call=call)
        subject = open_subject(spec, timeout=20)
        assert not isinstance(subject, NotChecked), subject
        return subject

    return run


def test_rates_are_told_by_their_names_and_values(opened: Any) -> None:
    assert rates_of(opened("Plain(8, 2)")) == {"attn_drop": 0.1, "keep_prob": 0.9}
    assert rates_of(opened("Plain(8, 2, p=0.4, attn_drop=0.0)")) == {"p": 0.4, "keep_prob": 0.9}


def test_of_a_config_only_those_for_attention_count(opened: Any) -> None:
    assert rates_of(opened("Configured(Cfg())")) == {"attn_pdrop": 0.1, "dropout": 0.3}


def test_an_entry_that_is_called_as_an_argument_is_none(opened: Any) -> None:
    assert rates_of(opened("Beside(Whole())")) == {}
    assert rates_of(opened("Beside(Whole(), 0.3)")) == {"dropout": 0.3}
    assert rates_of(opened("Beside(Whole(), dropout=0.2)")) == {"dropout": 0.2}


def test_of_several_entries_for_attention_those_that_are_read_count(opened: Any) -> None:
    subject = opened("Beside(Whole(attention_dropout=0.3))")
    assert rates_of(subject) == {}
    assert rates_of(subject, frozenset({"dim", "dropout"})) == {}
    assert rates_of(subject, frozenset({"attention_dropout"})) == {"attention_dropout": 0.3}


def test_a_module_of_a_program_has_entries_that_it_reads(opened: Any) -> None:
    module = opened("Configured(Cfg())").module
    module.cfg = SimpleNamespace(attn_pdrop=0.1, dropout=0.3)
    live = live_subject(take(module, (torch.randn(2, 3, 8),), {}))
    assert live.stated["dropout"] == 0.3
    assert rates_of(live) == {}
    assert rates_of(live, frozenset({"attn_pdrop", "dropout"})) == {"attn_pdrop": 0.1}


def test_small_numbers_of_other_names(opened: Any) -> None:
    assert unnamed_rates(opened("Plain(8, 2)")) == {"learning_rate": 0.01, "drop_path": 0.2}
    assert unnamed_rates(opened("Plain(8, 2, drop_path=0.9)")) == {"learning_rate": 0.01}


@pytest.mark.parametrize(
    ("build", "rates", "expected"),
    [
        ("Plain(8, 2)", {"attn_drop": 0.5}, "Plain(8, 2, attn_drop=0.5)"),
        ("Plain(8, 2, 0.1)", {"attn_drop": 0.5}, "Plain(8, 2, 0.5)"),
        ("Plain(dim=8, heads=2, attn_drop=0.3)", {"attn_drop": 0.5}, "Plain(dim=8, heads=2, attn_drop=0.5)"),
        ("Configured(Cfg(dim=4))", {"attn_pdrop": 0.5, "dropout": 0.7},
         "Configured(Cfg(dim=4, attn_pdrop=0.5), dropout=0.7)"),
        ("Plain(8, 2).half()", {"p": 0.5}, "Plain(8, 2, p=0.5).half()"),
    ],
)  # fmt: skip
def test_the_same_construction_with_other_rates(
    build: str, rates: dict[str, float], expected: str, opened: Any
) -> None:
    made, taken = with_rates(opened("Plain(8, 2)"), rates)
    subject = opened("Plain(8, 2)")
    subject.recipe = type(subject.recipe)(build, subject.call, "stated")
    made, taken = with_rates(subject, rates)
    assert (made, taken) == (expected, rates)


def test_a_rate_that_nothing_takes(opened: Any) -> None:
    assert with_rates(opened("Plain(8, 2)"), {"other": 0.5}) == ("Plain(8, 2)", {})


def test_where_an_argument_is_stored(opened: Any) -> None:
    lines = TEXT.splitlines()
    span = stored_at(opened("Plain(8, 2)"), "attn_drop")
    assert span is not None and lines[span.line - 1].strip() == "self.rate = attn_drop"
    span = stored_at(opened("Configured(Cfg())"), "attn_pdrop")
    assert span is not None and "cfg.attn_pdrop" in lines[span.line - 1]
    assert stored_at(opened("Plain(8, 2)"), "keep_prob") is None


def test_what_is_off_by_default_was_switched_on_by_us(opened: Any) -> None:
    assert not off_by_default(opened("Plain(8, 2, p=0.4)"), "p")
    inferred = opened(None, "Plain")
    assert rates_of(inferred)["p"] == 0.1
    assert off_by_default(inferred, "p")
    assert not off_by_default(inferred, "attn_drop")


@pytest.mark.parametrize(
    ("name", "attention", "others"),
    [
        ("attn_dropout", True, False),
        ("attention_probs_dropout_prob", True, False),
        ("dropout_att", True, False),
        ("dropout", False, False),
        ("attn_out_dropout", False, True),
        ("post_attention_dropout", False, True),
        ("resid_pdrop", False, True),
        ("proj_drop", False, True),
    ],
)
def test_what_a_name_says(name: str, attention: bool, others: bool) -> None:
    assert (is_for_attention(name), is_for_others(name)) == (attention, others)


def test_keep_probabilities() -> None:
    assert keeps("keep_prob")
    assert not keeps("dropout")
