"""MHA901: a mismatch that nothing explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from mha_lint.model.facts import (
    Known,
    SiteFacts,
    SubjectFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]


SENTENCE = "MHA.0: departs at the weights, max difference 0.4"


def test_a_mismatch(check: Check, subject: Subject, at: At) -> None:
    assert check("MHA901", subject(crosscheck=Known((SENTENCE,)))) == [
        Violation(
            "differs from the reference attention, and no known variant explains it:"
            " MHA.0: departs at the weights, max difference 0.4",
            at=at(20),
            here="departs from the reference",
            why="a fault without a rule of its own, or a design that the reference does not know",
            help="compare this stage with softmax(q k^T / sqrt(head_dim)) v, head by head",
            evidence=(SENTENCE,),
            confirm=f"witness: {SENTENCE}",
        )
    ]


def test_among_several_sites_the_named_one_is_marked(
    check: Check, subject: Subject, site: Site, at: At
) -> None:
    sites = []
    for index, line in ((1, 30), (11, 50)):
        one = site()
        one.info.spans["scores"] = at(line)
        sites.append(replace(one, info=replace(one.info, id=f"MHA.{index}")))
    facts = subject(
        sites=tuple(sites),
        crosscheck=Known(("MHA.11 departs at the scores", "the output departs")),
    )
    assert [found.at for found in check("MHA901", facts)] == [at(50), at(1)]
