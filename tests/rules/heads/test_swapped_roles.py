"""MHA106: one projection serves in the place of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Known,
    OutputProjection,
    Projection,
    Roles,
    SiteFacts,
)
from mha_lint.model.finding import Label, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def through(name: str) -> tuple[Projection, ...]:
    return (Projection(f"{name}.weight", ("x",), None, 24, 24),)


def test_weights_times_k(check: Check, site: Site, at: At) -> None:
    roles = Roles(
        through("query"), through("key"), through("key"), ("kv",), ("value.weight",), (), "k"
    )
    assert check("MHA106", site(roles=Known(roles, "the context moves with key"))) == [
        Violation(
            "the weights are multiplied with k instead of v: value never reaches the output",
            at=at(24),
            here="sums k, not v",
            why="what a head returns must pass through W_V, not through the map it compares by",
            help="context = weights @ v",
            evidence=("the context moves with key",),
            confirm="roles",
        )
    ]


def test_all_three_through_one_projection(check: Check, site: Site, at: At) -> None:
    key = through("lin_key")
    unused = ("lin_query.weight", "lin_query.bias", "lin_value.weight", "lin_value.bias")
    facts = site(roles=Known(Roles(key, key, key, ("qkv",), unused), "one storage"))
    assert check("MHA106", facts) == [
        Violation(
            "q, k and v come from one projection, lin_key,"
            " while lin_query and lin_value never reach the output",
            at=at(10),
            here="q is made by lin_key",
            why="q, k and v each need a learned map of their own",
            help="make q with its own projection; unused so far: lin_query and lin_value",
            evidence=("one storage",),
            labels=(Label(at(11), "so is k"), Label(at(12), "so is v")),
            confirm="roles",
        )
    ]


@pytest.mark.parametrize(("pair", "wrong", "line"), [("qk", "q", 10), ("kv", "v", 12)])
def test_the_operand_beside_the_key_is_marked(
    check: Check, site: Site, at: At, pair: str, wrong: str, line: int
) -> None:
    key = through("key")
    (found,) = check("MHA106", site(roles=Known(Roles(key, key, key, (pair,), ("other",)))))
    assert found.at == at(line)
    assert found.here == f"{wrong} is made by key"
    assert found.message == (
        f"{pair[0]} and {pair[1]} come from one projection, key,"
        " while other never reaches the output"
    )


def test_many_unused_heads_are_counted(check: Check, site: Site) -> None:
    unused = tuple(f"v_layers.{i}.weight" for i in range(4))
    roles = Roles(through("q"), through("k"), through("k"), (), unused, (), "k")
    (found,) = check("MHA106", site(roles=Known(roles)))
    assert found.message == (
        "the weights are multiplied with k instead of v:"
        " v_layers.0, v_layers.1 and 2 more never reach the output"
    )


def test_sharing_with_nothing_left_over_is_another_rule(check: Check, site: Site) -> None:
    key = through("key")
    assert check("MHA106", site(roles=Known(Roles(key, key, through("value"), ("qk",))))) == []


def test_an_unused_output_projection_is_another_rule(check: Check, site: Site) -> None:
    key = through("key")
    roles = Roles(key, key, through("value"), ("qk",), ("output.weight", "output.bias"))
    output = OutputProjection(False, declared=("output.weight",))
    assert check("MHA106", site(roles=Known(roles), output_projection=Known(output))) == []


def test_an_unused_projection_alone_is_another_rule(check: Check, site: Site) -> None:
    roles = Roles(through("query"), through("key"), through("value"), (), ("gate.weight",))
    assert check("MHA106", site(roles=Known(roles))) == []
