"""MHA106: one projection serves in the place of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Dims,
    Known,
    NotApplicable,
    OutputProjection,
    Projection,
    Roles,
    SiteFacts,
)
from mha_lint.model.finding import Label, Severity, Violation
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


def test_keys_and_values_exchanged(check: Check, site: Site, at: At) -> None:
    why = "the values are normalised as the queries are, and the keys are not"
    roles = Roles(through("query"), through("value"), through("key"), exchanged=why)
    (found,) = check("MHA106", site(roles=Known(roles, "graph")))
    assert found.message == (
        "keys and values are exchanged: the scores compare with value, and the weights sum key"
        f" ({why})"
    )
    assert (found.at, found.severity) == (at(24), Severity.WARNING)
    assert found.evidence == ("graph", why)
    assert found.confirm == "identity: k comes through value, v through key"


def test_weights_in_the_place_of_values(check: Check, site: Site, at: At) -> None:
    roles = Roles(through("query"), through("key"), through("value"), value_is="weights")
    (found,) = check("MHA106", site(roles=Known(roles, "nothing reads the product")))
    assert found == Violation(
        "the weights are taken for the values that they should sum: nothing reads weights @ v",
        at=at(24),
        here="the weights, not the context",
        why="the values take no part: the output depends on how the keys are weighted alone",
        help="use the context: where a helper returns both, unpack them in its order",
        evidence=("nothing reads the product",),
        confirm="identity: nothing that weights @ v computes reaches the output",
    )


def test_values_made_from_projected_keys(check: Check, site: Site, at: At) -> None:
    roles = Known(Roles(through("query"), through("key"), through("value"), chained=(("v", "k"),)))
    (found,) = check("MHA106", site(roles=roles))
    assert found.severity is Severity.WARNING
    assert found.message == (
        "v is projected from k, which is projected already: value reads what key made"
    )
    one = Known(Dims(24, 1, 1, 24, 24, 7, 7, 3))
    alone = NotApplicable("one head needs no map that mixes heads")
    assert check("MHA106", site(roles=roles, dims=one, output_projection=alone)) == []
    assert len(check("MHA106", site(roles=roles, dims=one))) == 1
