"""A triangle joined with its other side hides nothing, at any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.lost import lost_triangle

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

SOFTMAX = "        weights = scores.softmax(dim=-1)\n"
FUTURE, FAR = "torch.ones(T, T).triu(1)", "torch.ones(T, T).tril(-3)"


def lost(measured: Measure, hide: str) -> str | None:
    edit = f"        scores = scores.masked_fill({hide}, -1e9)\n{SOFTMAX}"
    (site,) = (bench := measured((SOFTMAX, edit)).bench).sites
    node = lost_triangle(bench, site, 5)
    return None if node is None else str(node.meta["op"])


@pytest.mark.parametrize(
    ("hide", "operation"),
    [
        (f"{FUTURE}.bool() & {FAR}.bool()", "bitwise_and"),
        (f"torch.logical_and({FAR}.bool(), {FUTURE}.bool())", "logical_and"),
        (f"({FUTURE} * {FAR}) == 1", "mul"),
        (f"~(({FUTURE} == 0) | ({FAR} == 0))", "bitwise_or"),
    ],
)
def test_a_lost_triangle(measured: Measure, hide: str, operation: str) -> None:
    assert lost(measured, hide) == operation


@pytest.mark.parametrize(
    "hide",
    [
        f"{FUTURE}.bool() | {FAR}.bool()",  # a window
        f"{FUTURE}.bool() & torch.ones(T, T).triu(9).bool()",  # nothing yet at this length
        f"{FUTURE}.bool() & torch.zeros(T, T).bool()",
        f"{FUTURE}.bool() & torch.ones(T, T).triu(2).bool()",  # one key ahead
        "torch.zeros(T, T).bool()",
    ],
)
def test_a_triangle_that_is_none_or_acts(measured: Measure, hide: str) -> None:
    assert lost(measured, hide) is None
