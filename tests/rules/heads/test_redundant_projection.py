"""MHA108: two linear maps in a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import (
    Known,
    Projection,
    Roles,
    SiteFacts,
    Stacked,
    Unknown,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def stack(operand: str, span: Span | None) -> Stacked:
    return Stacked(f"{operand}_pre.weight", "in_proj_weight", operand, span)


def test_one_note_for_each_line(check: Check, site: Site, at: At) -> None:
    facts = site(stacked=Known((stack("q", at(30)), stack("k", at(30)), stack("v", None)), "e"))
    first, second = check("MHA108", facts)
    assert first == Violation(
        "q_pre and in_proj_weight are two linear maps in a row on q and k,"
        " with nothing between them",
        at=at(30),
        here="in_proj_weight follows q_pre directly",
        why="two linear maps in a row can do no more than one",
        help="drop q_pre, or put a nonlinearity between the two",
        evidence=("e",),
        confirm="identity: in_proj_weight(q_pre(x)) is one linear map of x",
    )
    assert second.message == (
        "v_pre and in_proj_weight are two linear maps in a row on v, with nothing between them"
    )
    assert second.at == at(12)


def test_the_librarys_own_out_proj_stays(check: Check, site: Site) -> None:
    stacked = Known((Stacked("attn.out_proj.weight", "head.weight", "output", None),), "e")
    (found,) = check("MHA108", site(stacked=stacked))
    assert found.help.startswith("drop attn.out_proj, or")
    library = (Projection("attn.in_proj_weight", ("x",), None, 24, 24),)
    (found,) = check(
        "MHA108", site(stacked=stacked, roles=Known(Roles(library, library, library), "roles"))
    )
    assert found.help.startswith("drop head, or")


def test_an_overwritten_operand_is_another_rule(check: Check, site: Site, at: At) -> None:
    stacked = Known((stack("q", at(30)), stack("k", at(31))))
    facts = site(stacked=stacked, overwritten=Known(("q",)))
    assert [found.at for found in check("MHA108", facts)] == [at(31)]


def test_decided_though_overwriting_is_unknown(check: Check, site: Site, at: At) -> None:
    facts = site(stacked=Known((stack("q", at(30)),)), overwritten=Unknown("one head"))
    assert [found.at for found in check("MHA108", facts)] == [at(30)]
