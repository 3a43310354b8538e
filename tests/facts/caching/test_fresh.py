"""A module made anew has not been called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_lint.facts.caching.fresh import fresh_module

if TYPE_CHECKING:
    from tests.facts.conftest import Measure


def test_a_fresh_module(measured: Measure) -> None:
    case = measured(
        ("self.h = num_heads", "self.h, self.calls = num_heads, 0"),
        ("        B, T, C = x.shape\n", "        self.calls += 1\n        B, T, C = x.shape\n"),
    )
    assert case.subject.module.calls > 0  # type: ignore[union-attr,operator]
    made = fresh_module(case.subject)
    assert made.calls == 0
    assert made is not case.subject.module


def test_a_copy_where_nothing_can_be_made(measured: Measure) -> None:
    subject = measured().subject
    maker, subject.maker = subject.maker, None
    try:
        made = fresh_module(subject)
    finally:
        subject.maker = maker
    assert type(made) is type(subject.module)
    assert made is not subject.module
