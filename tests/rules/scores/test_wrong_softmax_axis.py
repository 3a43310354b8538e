"""MHA204: the normalised axis is not the summed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import (
    Kind,
    Known,
    Normaliser,
    SiteFacts,
)
from mha_lint.model.finding import Label, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def normalised(function: str = "softmax", **changed: Any) -> Known[Normaliser]:
    fact = Normaliser(function, ("keys",), (3,), "(B, h, T_q, T_k)", (0.24, 2.91))
    return Known(replace(fact, **changed), "one score was moved")


def test_over_queries(check: Check, site: Site, at: At) -> None:
    facts = site(normaliser=normalised(axes=("queries",), axis=(2,)))
    assert check("MHA204", facts) == [
        Violation(
            "softmax over queries: axis 2 of (B, h, T_q, T_k),"
            " but the keys, axis 3, are what is summed with V",
            at=at(23),
            here="normalises over queries",
            why="one query's weights over the keys should sum to 1; here they sum to 0.24 ... 2.91",
            help="softmax(scores, dim=-1)",
            evidence=("one score was moved",),
            labels=(Label(at(24), "sums over the keys, axis 3"),),
            confirm="softmax-axis",
        )
    ]


def test_an_implicit_axis_says_so(check: Check, site: Site) -> None:
    facts = site(normaliser=normalised(axes=("heads",), axis=(1,), implicit=True))
    (found,) = check("MHA204", facts)
    assert found.message == (
        "softmax over heads: axis 1 of (B, h, T_q, T_k) (no dim was given),"
        " but the keys, axis 3, are what is summed with V"
    )


def test_heads_and_keys_flattened_together(check: Check, site: Site) -> None:
    fact = normalised(axes=("heads", "keys"), axis=(2,), shape="(B, T_q, h*T_k)", row_sums=None)
    (found,) = check("MHA204", site(normaliser=fact))
    assert found.message == (
        "softmax over heads and keys together: axis 2 of (B, T_q, h*T_k),"
        " but the keys are what is summed with V"
    )
    assert found.here == "normalises over heads and keys together"
    assert found.why == "one query's weights over the keys should sum to 1"
    assert found.help == (
        "normalise each query's scores over its keys alone, before any flattening"
    )


def test_keys_that_stand_first(check: Check, site: Site) -> None:
    fact = normalised(axes=("queries",), axis=(3,), shape="(B, h, T_k, T_q)")
    (found,) = check("MHA204", site(normaliser=fact))
    assert found.message == (
        "softmax over queries: axis 3 of (B, h, T_k, T_q),"
        " but the keys, axis 2, are what is summed with V"
    )
    assert found.help == "softmax(scores, dim=2)"


def test_several_axes_without_known_positions(check: Check, site: Site) -> None:
    fact = normalised("sum", axes=("batch", "queries", "keys"), axis=(), row_sums=None)
    (found,) = check("MHA204", site(normaliser=fact))
    assert found.message == (
        "sum over batch, queries and keys together, but the keys, axis 3, are what is summed with V"
    )


def test_a_plain_sum_over_queries(check: Check, site: Site) -> None:
    (found,) = check("MHA204", site(normaliser=normalised("sum", axes=("queries",), axis=(2,))))
    assert found.help == "weights / weights.sum(dim=-1, keepdim=True)"


@pytest.mark.parametrize(
    ("told", "axis"), [("axis 1", ", axis 1,"), ("axis 3", ", axis 3,"), ("the keys", "")]
)
def test_the_measured_axis_of_the_keys(check: Check, site: Site, told: str, axis: str) -> None:
    fact = normalised(axes=("queries",), axis=(2,), shape="(B, h, ?, ?)", contracted_axis=told)
    (found,) = check("MHA204", site(normaliser=fact))
    assert found.message == (
        "softmax over queries: axis 2 of (B, h, ?, ?),"
        f" but the keys{axis} are what is summed with V"
    )


@pytest.mark.parametrize("told", ["keys", "axis 3", "the keys"])
def test_however_the_keys_are_told_they_are_right(check: Check, site: Site, told: str) -> None:
    assert check("MHA204", site(normaliser=normalised(contracted_axis=told))) == []


def test_no_label_on_the_same_line(check: Check, site: Site, at: At) -> None:
    facts = site(normaliser=normalised(axes=("queries",), axis=(2,)))
    facts.info.spans["value"] = at(23)
    (found,) = check("MHA204", facts)
    assert found.labels == ()


@pytest.mark.parametrize("function", ["none", "sigmoid", "relu", "other"])
def test_functions_without_an_axis(check: Check, site: Site, function: str) -> None:
    assert check("MHA204", site(normaliser=normalised(function, axes=("queries",)))) == []


def test_axes_that_are_not_known_are_not_wrong(check: Check, site: Site) -> None:
    assert check("MHA204", site(normaliser=normalised(axes=()))) == []


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.CHANNEL])
def test_other_kinds_are_not_judged(check: Check, site: Site, kind: Kind) -> None:
    assert check("MHA204", site(normaliser=normalised(axes=("features",)), kind=kind)) == []
