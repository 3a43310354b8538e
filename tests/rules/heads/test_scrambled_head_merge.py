"""MHA105: the merge mixes positions with heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Known,
    Layout,
    LayoutKind,
    SiteFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def merge(kind: LayoutKind, span: Span | None = None) -> Known[Layout]:
    return Known(Layout(kind, "context", example="output 0 holds tokens 0, 1, 2", span=span))


def test_missing_transpose(check: Check, site: Site, at: At) -> None:
    assert check("MHA105", site(merge=merge(LayoutKind.SCRAMBLED))) == [
        Violation(
            "the merge of the heads mixes positions with heads",
            at=at(25),
            here="one output position holds the context of several positions",
            why="each output position then holds what other positions attended to",
            help="context.transpose(1, 2).reshape(B, T, num_heads * v_dim)",
            evidence=("output 0 holds tokens 0, 1, 2",),
            confirm="merge",
        )
    ]


def test_samples(check: Check, site: Site, at: At) -> None:
    (found,) = check("MHA105", site(merge=merge(LayoutKind.MIXED_SAMPLES, at(27))))
    assert found.message == "the merge of the heads mixes samples with heads"
    assert found.at == at(27)


def test_batch_order_is_the_subject_s(check: Check, site: Site) -> None:
    assert check("MHA105", site(merge=merge(LayoutKind.OVER_BATCH))) == []


def test_silent_where_attention_runs_over_heads(check: Check, site: Site) -> None:
    over_heads = Known(Layout(LayoutKind.OVER_HEADS, "k"))
    facts = site(merge=merge(LayoutKind.SCRAMBLED), split_k=over_heads)
    assert check("MHA105", facts) == []


@pytest.mark.parametrize(("line", "count"), [(25, 0), (14, 1)])
def test_beside_a_scrambled_split_only_on_a_line_of_its_own(
    check: Check, site: Site, at: At, line: int, count: int
) -> None:
    split = Known(Layout(LayoutKind.SCRAMBLED, "v", span=at(line)))
    facts = site(merge=merge(LayoutKind.SCRAMBLED), split_v=split)
    assert len(check("MHA105", facts)) == count
