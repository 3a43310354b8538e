"""MHA503: the values are rotated too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.position_facts import Rotary
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_values(check: Check, site: Site, at: At) -> None:
    fact = Known(Rotary(("q", "k", "v"), values=at(17), values_turned=True), "pairs")
    assert check("MHA503", site(rotary=fact)) == [
        Violation(
            "the values are rotated by position as well, and the result is not rotated back",
            at=at(17),
            here="rotates the values",
            why="equal values at different positions no longer add up",
            help="rotate q and k only",
            evidence=("pairs",),
            confirm="identity: equal values at two positions come out of the rotation different",
        )
    ]


@pytest.mark.parametrize(("turned", "count"), [(("q", "v"), 0), (("q", "k", "v"), 1)])
def test_exchanged_keys_are_another_fault(
    check: Check, site: Site, turned: tuple[str, ...], count: int
) -> None:
    right = site()
    assert isinstance(right.roles, Known)
    roles = Known(replace(right.roles.value, value_is="k"))
    fact = Known(Rotary(turned, values_turned=True))
    assert len(check("MHA503", replace(right, roles=roles, rotary=fact))) == count


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA503", site(rotary=Known(Rotary(("q", "k"))))) == []
