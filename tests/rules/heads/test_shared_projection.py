"""MHA107: one weight behind two operands or all heads."""

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
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def through(name: str) -> tuple[Projection, ...]:
    return (Projection(f"{name}.weight", ("x",), None, 24, 24),)


def test_q_and_k_share(check: Check, site: Site, at: At) -> None:
    roles = Roles(through("key"), through("key"), through("value"), ("qk",))
    assert check("MHA107", site(roles=Known(roles, "q equals k"))) == [
        Violation(
            "q and k come from one and the same projection, key",
            at=at(11),
            here="the weight of q and k",
            why="with one weight for both, the two can never differ",
            help="give k a projection of its own, or suppress this if it is meant",
            evidence=("q equals k",),
            confirm="identity: q and k are the same channels of key",
        )
    ]


def test_heads_share(check: Check, site: Site, at: At) -> None:
    roles = Roles(through("qry"), through("key"), through("val"), heads_share=("q", "k", "v"))
    (found,) = check("MHA107", site(roles=Known(roles)))
    assert found.message == "all heads make q, k and v with one and the same weight, qry"
    assert found.at == at(10)
    assert found.confirm == "identity: one storage serves every head's q, k and v"


@pytest.mark.parametrize(("name", "line"), [("q_heads.0.weight", 5), ("q_head.weight", 10)])
def test_a_list_of_one_layer_is_marked_where_it_is_made(
    check: Check, site: Site, at: At, name: str, line: int
) -> None:
    one = (Projection(name, ("x",), None, 24, 6, declared=at(5)),)
    roles = Roles(one, through("key"), through("value"), heads_share=("q",))
    (found,) = check("MHA107", site(roles=Known(roles)))
    assert found.at == at(line)


def test_left_over_projections_are_another_rule(check: Check, site: Site) -> None:
    roles = Roles(through("key"), through("key"), through("value"), ("qk",), ("query.weight",))
    assert check("MHA107", site(roles=Known(roles))) == []


def test_an_unused_output_projection_is_not_left_over(check: Check, site: Site) -> None:
    roles = Roles(through("key"), through("key"), through("value"), ("qk",), ("output.weight",))
    output = Known(OutputProjection(False, declared=("output.weight",)))
    assert len(check("MHA107", site(roles=Known(roles), output_projection=output))) == 1


def test_inputs_without_projections_are_not_shared_weights(check: Check, site: Site) -> None:
    assert check("MHA107", site(roles=Known(Roles((), (), (), ("qkv",))))) == []


def test_multi_query_attention_shares_keys_and_values(check: Check, site: Site) -> None:
    roles = Roles(through("q"), through("k"), through("v"), heads_share=("k", "v"))
    dims = Known(Dims(24, 4, 1, 6, 6, 7, 7, 3))
    assert check("MHA107", site(roles=Known(roles), dims=dims)) == []


def test_one_head_shares_nothing(check: Check, site: Site) -> None:
    roles = Roles(through("q"), through("k"), through("v"), heads_share=("q", "k", "v"))
    dims = Known(Dims(24, 1, 1, 24, 24, 7, 7, 3))
    assert check("MHA107", site(roles=Known(roles), dims=dims)) == []
