"""A second softmax is a fault; so are sums that are no longer one, query by query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
SOFTMAX = "scores.softmax(dim=-1)"
PRIOR = "torch.linspace(0.1, 1, T)"


@pytest.mark.parametrize(
    ("spelling", "times", "renormalised"),
    [
        ("scores.softmax(-1).softmax(-1)", 2, False),
        ("scores.log_softmax(-1).exp().softmax(-1)", 2, False),
        ("(scores.softmax(-1) + 0.1).softmax(-1)", 2, False),
        (f"(scores.log_softmax(-1) + torch.log({PRIOR})).softmax(-1)", 1, True),
        (f"(w := scores.softmax(-1) * {PRIOR}) / w.sum(-1, keepdim=True)", 1, True),
    ],
)
def test_how_often_the_weights_are_normalised(
    spelling: str, times: int, renormalised: bool, measured: Measure, known: Known
) -> None:
    found = known(measured((SOFTMAX, spelling)).site.normaliser)
    assert (found.times, found.renormalised) == (times, renormalised)


@pytest.mark.parametrize(
    ("spelling", "uneven"),
    [
        ("scores.softmax(-1)", False),
        ("(w := scores.softmax(-1)) / w.amax(-1, keepdim=True)", True),
        ("(w := scores.softmax(-1)) + w.mT", True),
        ("scores.exp() / scores.exp().sum(-1, keepdim=True).sqrt()", True),
        ("scores.softmax(-1).square()", False),
        ("1.3 * scores.softmax(-1)", False),
        ("scores.softmax(-1) + torch.eye(T)", False),
        ("scores.softmax(-1).tril()", False),
        ("scores.softmax(-1) + torch.linspace(0, 1, T)", False),
    ],
)
def test_sums_that_differ_from_query_to_query(
    spelling: str, uneven: bool, measured: Measure, known: Known
) -> None:
    found = known(measured((SOFTMAX, spelling)).site.normaliser)
    assert found.uneven == uneven, found.row_sums
