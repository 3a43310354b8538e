"""One query that is made of all the states that it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.pooled import asks_as_one

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

QUERY = "self.q_proj(x).view(B, T, self.h, self.d_k)"
ONE = ("reshape(B, T, C)", "reshape(B, 1, C)")


@pytest.mark.parametrize(
    ("of", "pooled"),
    [
        ("x.mean(1)", True),
        ("x.softmax(1).sum(1)", True),
        ("self.k_proj(x).amax(1)", True),
        ("x[:, 0]", False),
        ("x[:, 2:3] * 2", False),
        ("x.detach()[:, -1]", False),
    ],
)
def test_what_the_query_is_made_of(of: str, pooled: bool, measured: Measure) -> None:
    case = measured((QUERY, f"self.q_proj({of}).view(B, 1, self.h, self.d_k)"), ONE)
    assert asks_as_one(case.bench, case.bench.sites[0]) is pooled


def test_many_queries_are_not_one(measured: Measure) -> None:
    case = measured((QUERY, "self.q_proj(x + x.mean(1, True)).view(B, T, self.h, self.d_k)"))
    assert not asks_as_one(case.bench, case.bench.sites[0])
