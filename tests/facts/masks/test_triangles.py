"""Windows that are read the wrong way round."""

from __future__ import annotations

import pytest

from mha_lint.facts.masks.fit import measure_mask_fit
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Known
from mha_lint.model.mask_fit_facts import Inversion
from tests.facts.conftest import Case, Measure
from tests.facts.masks.test_bands import local

INSIDE_OUT = ("attn_mask=seen", "attn_mask=~seen")
BOTH = ("(behind >= 0) & (behind < self.window)", "behind.abs() < self.window")


def inverted(case: Case) -> tuple[Inversion, ...]:
    found = measure_mask_fit(case.subject, case.bench, case.bench.sites[0], Contract())
    assert isinstance(found, Known), found
    return found.value.inverted


def test_all_but_the_window(measured: Measure) -> None:
    (one,) = inverted(local(measured, INSIDE_OUT))
    assert (one.how, one.certain) == ("window", True)
    assert one.signs == ("every query sees all positions but itself and the 2 before it",)
    assert one.witness == "query 6 does not see key 6, and sees key 0"


def test_all_but_a_window_on_both_sides(measured: Measure) -> None:
    (one,) = inverted(local(measured, INSIDE_OUT, BOTH))
    assert (one.how, one.certain) == ("window", False)
    assert one.signs == (
        "every query sees all positions but itself and the 2 on either side of it",
    )


@pytest.mark.parametrize(
    "edits",
    [
        (),
        (INSIDE_OUT, BOTH, ("        behind =", "        # what lies outside\n        behind =")),
        (INSIDE_OUT, ("(behind >= 0) & (behind < self.window)", "behind == 0")),
        (INSIDE_OUT, ("(behind >= 0) & (behind < self.window)", "behind >= 0")),
    ],
)
def test_no_window_inside_out(edits: tuple[tuple[str, str], ...], measured: Measure) -> None:
    assert not any(one.how == "window" for one in inverted(local(measured, *edits)))
