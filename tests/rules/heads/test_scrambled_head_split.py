"""MHA104: the split mixes positions or samples with channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Known,
    Layout,
    LayoutKind,
    NotApplicable,
    SiteFacts,
    Unknown,
    UnknownFactError,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span
from mha_lint.rulebook.pack import LoadedRule

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def split(kind: LayoutKind, operand: str, span: Span | None = None) -> Known[Layout]:
    return Known(Layout(kind, operand, example=f"row 0 of {operand} holds 4 tokens", span=span))


def test_all_three_on_one_line(check: Check, site: Site, at: At) -> None:
    scrambled = LayoutKind.SCRAMBLED
    facts = site(**{f"split_{o}": split(scrambled, o, at(14)) for o in "qkv"})
    assert check("MHA104", facts) == [
        Violation(
            "the split of q, k and v into heads mixes positions with channels",
            at=at(14),
            here="one row of a head holds several positions",
            why="the scores then compare pieces of different positions",
            help="x.view(B, T, num_heads, head_dim).transpose(1, 2)",
            evidence=tuple(f"row 0 of {o} holds 4 tokens" for o in "qkv"),
            confirm="split:q",
        )
    ]


def test_one_finding_for_each_line(check: Check, site: Site, at: At) -> None:
    facts = site(
        split_q=split(LayoutKind.SCRAMBLED, "q", at(14)),
        split_k=split(LayoutKind.SCRAMBLED, "k", at(14)),
        split_v=split(LayoutKind.MIXED_SAMPLES, "v"),
    )
    first, second = check("MHA104", facts)
    assert first.message == "the split of q and k into heads mixes positions with channels"
    assert second.message == "the split of v into heads mixes samples with channels"
    assert (first.at, second.at) == (at(14), at(15))
    assert (first.confirm, second.confirm) == ("split:q", "split:v")


def test_rows_that_are_heads_belong_to_another_rule(check: Check, site: Site) -> None:
    assert check("MHA104", site(split_q=split(LayoutKind.OVER_HEADS, "q"))) == []


def test_rows_that_are_samples_are_told_once(check: Check, site: Site) -> None:
    facts = site(**{f"split_{o}": split(LayoutKind.OVER_BATCH, o) for o in "qk"})
    (found,) = check("MHA104", facts)
    said = "a row of q and k is a whole sample: its positions stand in the place of channels"
    assert (found.message, found.at) == (said, facts.info.at("scores"))
    assert (found.here, found.confirm) == (
        "compares samples: a score sums over the positions",
        "split:q",
    )


def test_a_scrambled_operand_is_told_though_another_is_unknown(
    rules: dict[str, LoadedRule], site: Site
) -> None:
    facts = site(split_q=Unknown("q is computed"), split_k=split(LayoutKind.SCRAMBLED, "k"))
    run = rules["MHA104"].rule.site
    assert run is not None
    findings = run(facts)
    assert next(findings).message == ("the split of k into heads mixes positions with channels")
    with pytest.raises(UnknownFactError, match="q is computed"):
        next(findings)


def test_an_operand_that_does_not_apply_is_passed_over(check: Check, site: Site) -> None:
    facts = site(
        split_q=NotApplicable("the query is learned"),
        split_k=split(LayoutKind.SCRAMBLED, "k"),
    )
    assert [found.confirm for found in check("MHA104", facts)] == ["split:k"]
