"""MHA602: attention runs over the heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Kind,
    Known,
    Layout,
    LayoutKind,
    SiteFacts,
)
from mha_lint.model.finding import Label, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def split(kind: LayoutKind, operand: str, span: Span | None = None) -> Known[Layout]:
    return Known(Layout(kind, operand, example=f"row 0 of {operand} is head 0", span=span))


def test_all_three_in_one_finding(check: Check, site: Site, at: At) -> None:
    over = LayoutKind.OVER_HEADS
    facts = site(
        split_q=split(over, "q", at(17)),
        split_k=split(over, "k", at(17)),
        split_v=split(over, "v"),
    )
    assert check("MHA602", facts) == [
        Violation(
            "attention runs over the heads of each position, not over positions:"
            " the rows of q, k and v are heads",
            at=at(17),
            here="the axis before the last holds heads, not positions",
            why="no position sees another: the layer moves nothing along the sequence",
            help="transpose (B, T, h, head_dim) to (B, h, T, head_dim): x.transpose(1, 2)",
            evidence=tuple(f"row 0 of {o} is head 0" for o in "qkv"),
            labels=(Label(at(15), "the same for v"),),
            confirm="split:q",
        )
    ]


@pytest.mark.parametrize(
    "kind", [LayoutKind.SCRAMBLED, LayoutKind.OVER_BATCH, LayoutKind.MIXED_SAMPLES]
)
def test_other_layouts_belong_to_other_rules(check: Check, site: Site, kind: LayoutKind) -> None:
    assert check("MHA602", site(split_k=split(kind, "k"))) == []


def test_channel_attention_is_not_judged(check: Check, site: Site) -> None:
    facts = site(split_k=split(LayoutKind.OVER_HEADS, "k"), kind=Kind.CHANNEL)
    assert check("MHA602", facts) == []
