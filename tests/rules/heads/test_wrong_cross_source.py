"""MHA112: the source of a cross-attention is ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Kind,
    Known,
    Projection,
    Roles,
    SiteFacts,
    SubjectFacts,
    UnusedInput,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]


MEMORY = UnusedInput("memory", (3, 11, 24), looks_like_source=True)


def test_a_source_that_is_never_read(check: Check, subject: Subject, at: At) -> None:
    assert check("MHA112", subject(unused_inputs=Known((MEMORY,), "no output moves"))) == [
        Violation(
            "memory is never read: keys and values come from the same states as the queries"
            " (judged from the argument name)",
            at=at(11),
            here="should read memory",
            why="cross-attention without its source is self-attention, and the source is ignored",
            help="make keys and values from the source: k = self.key(memory)",
            evidence=("no output moves",),
            confirm="identity: no output depends on memory",
        )
    ]


@pytest.mark.parametrize("modules", [("self_attn", "enc_attn"), ("cross", "self_attn")])
def test_the_likeliest_site_is_marked(
    check: Check, subject: Subject, site: Site, at: At, modules: tuple[str, str]
) -> None:
    sites = tuple(site(module=name) for name in modules)
    for index, line in enumerate((33, 34)):
        sites[index].info.spans["call"] = at(line)
    (found,) = check("MHA112", subject(sites=sites, unused_inputs=Known((MEMORY,))))
    assert found.at == at(34 if modules[1] == "enc_attn" else 33)


def test_several_sources(check: Check, subject: Subject) -> None:
    other = UnusedInput("context", (3, 5, 24), looks_like_source=True)
    (found,) = check("MHA112", subject(unused_inputs=Known((MEMORY, other))))
    assert found.message.startswith("memory and context are never read: ")


def test_an_unused_mask_is_no_source(check: Check, subject: Subject) -> None:
    mask = UnusedInput("mask", (7, 7), looks_like_source=False)
    assert check("MHA112", subject(unused_inputs=Known((mask,)))) == []


def test_silent_beside_a_real_cross_attention(check: Check, subject: Subject, site: Site) -> None:
    sites = (site(), site(kind=Kind.CROSS))
    assert check("MHA112", subject(sites=sites, unused_inputs=Known((MEMORY,)))) == []


def test_silent_without_attention(check: Check, subject: Subject) -> None:
    assert check("MHA112", subject(sites=(), unused_inputs=Known((MEMORY,)))) == []


def test_a_source_that_is_encoded_and_dropped(check: Check, subject: Subject, site: Site) -> None:
    tokens = UnusedInput("src", (2, 9), looks_like_source=True, encoded=True)
    (found,) = check("MHA112", subject(unused_inputs=Known((tokens,)), sites=(site(),)))
    assert found.message == (
        "src is never read: keys and values come from the same states as the queries"
        " (it is encoded, and the result dropped)"
    )
    assert found.help == "pass what was made of it on: decoder(x, memory)"


def reads(q: tuple[str, ...], k: tuple[str, ...]) -> Known[Roles]:
    made = {
        name: (Projection(f"{name}.weight", source, None, 24, 24),)
        for name, source in (("q", q), ("k", k), ("v", k))
    }
    return Known(Roles(made["q"], made["k"], made["v"]), "roles")


def test_a_source_that_asks(check: Check, subject: Subject, site: Site) -> None:
    asks = site(kind=Kind.CROSS, roles=reads(("memory",), ("x",)))
    (found,) = check("MHA112", subject(sites=(asks,)))
    assert found.message.startswith("the queries come from memory and the keys from x: ")


def test_a_source_that_gathers_first_and_answers_then(
    check: Check, subject: Subject, site: Site
) -> None:
    asks = site(kind=Kind.CROSS, roles=reads(("memory",), ("x",)))
    answers = site(kind=Kind.CROSS, roles=reads(("x",), ("memory", "x")))
    assert check("MHA112", subject(sites=(asks, answers))) == []
