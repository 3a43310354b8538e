"""MHA109: what is declared and never reaches the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Dims,
    Known,
    OutputProjection,
    Projection,
    Roles,
    SiteFacts,
    SubjectFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]


def through(name: str) -> tuple[Projection, ...]:
    return (Projection(f"{name}.weight", ("x",), None, 24, 24),)


def test_a_forgotten_dropout(check: Check, subject: Subject, at: At) -> None:
    facts = subject(unused_modules=Known((("dropout", at(6)), ("gate.weight", None)), "graph"))
    first, second = check("MHA109", facts)
    assert first == Violation(
        "dropout is declared but never reaches the output",
        at=at(6),
        here="has no effect",
        why="a part that has no effect was forgotten, or is dead weight",
        help="apply dropout where it belongs, or remove it",
        evidence=("graph",),
        confirm="identity: nothing that dropout computes reaches the output",
    )
    assert second.message == "gate is declared but never reaches the output"
    assert second.at == at(1)


def test_what_mha101_names_is_left_to_it(check: Check, subject: Subject, site: Site) -> None:
    output = Known(OutputProjection(False, declared=("fc.weight", "fc.bias")))
    unused = Known((("fc", None), ("dropout", None)))
    facts = subject(sites=(site(output_projection=output),), unused_modules=unused)
    assert [found.help for found in check("MHA109", facts)] == [
        "apply dropout where it belongs, or remove it"
    ]


@pytest.mark.parametrize(
    "output",
    [
        OutputProjection(True, "output.weight", declared=("fc.weight",)),
        OutputProjection(False, enclosing="Block", declared=("fc.weight",)),
    ],
)
def test_a_second_output_map_is_reported_where_mha101_is_silent(
    check: Check, subject: Subject, site: Site, output: OutputProjection
) -> None:
    facts = subject(
        sites=(site(output_projection=Known(output)),), unused_modules=Known((("fc", None),))
    )
    assert len(check("MHA109", facts)) == 1


def test_of_one_head_an_unused_output_map_is_reported(
    check: Check, subject: Subject, site: Site
) -> None:
    dims = Known(Dims(24, 1, 1, 24, 24, 7, 7, 3))
    output = Known(OutputProjection(False, declared=("fc.weight",)))
    sites = (site(output_projection=output, dims=dims),)
    facts = subject(sites=sites, unused_modules=Known((("fc", None),)))
    assert len(check("MHA109", facts)) == 1


def test_what_mha106_names_is_left_to_it(check: Check, subject: Subject, site: Site) -> None:
    roles = Roles(
        through("query"), through("key"), through("key"), ("kv",), ("value.weight",), (), "k"
    )
    facts = subject(sites=(site(roles=Known(roles)),), unused_modules=Known((("value", None),)))
    assert check("MHA109", facts) == []


def test_an_unused_projection_without_a_swap_is_reported(
    check: Check, subject: Subject, site: Site
) -> None:
    roles = Roles(through("query"), through("key"), through("value"), (), ("gate.weight",))
    facts = subject(sites=(site(roles=Known(roles)),), unused_modules=Known((("gate", None),)))
    assert len(check("MHA109", facts)) == 1


def test_a_dropped_copy_is_no_declaration(check: Check, subject: Subject) -> None:
    (found,) = check("MHA109", subject(unused_modules=Known((("the normalised copy of k", None),))))
    assert found.message == "the normalised copy of k never reaches the output"


def test_the_list_of_what_mha106_names_is_left_to_it(
    check: Check, subject: Subject, site: Site
) -> None:
    roles = Roles(
        through("query"), through("key"), through("key"), ("kv",), ("values.0.weight",), (), "k"
    )
    unused = Known((("values", None), ("gate", None)))
    facts = subject(sites=(site(roles=Known(roles)),), unused_modules=unused)
    assert [found.message for found in check("MHA109", facts)] == [
        "gate is declared but never reaches the output"
    ]
