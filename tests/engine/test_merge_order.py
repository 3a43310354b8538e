"""An order of merged heads is no difference where it is measured to be no fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mha_lint.engine.merge_order import without_own_order
from mha_lint.model.facts import Known, LayoutKind, SiteFacts, Unknown
from mha_lint.oracle import Deviation, Verdict
from tests.facts.conftest import BUILD, CALL, HEADER, PLAIN, measure_file

MERGE = Deviation("output", "merge", "other", "merged otherwise", "output equals ...", 4e-16)
DIFFERS = Verdict("mismatch", "output", (MERGE,), max_abs_error=0.7)


@pytest.fixture
def facts(tmp_path: Path) -> SiteFacts:
    file = tmp_path / "attention.py"
    file.write_text(HEADER + PLAIN)
    return measure_file(file, "MHA", BUILD, CALL).site


def test_a_right_merge_in_an_order_of_its_own(facts: SiteFacts) -> None:
    assert isinstance(facts.merge, Known) and facts.merge.value.kind is LayoutKind.RIGHT
    for one in (facts, replace(facts, merge=Unknown("rows are folded"))):
        found = without_own_order(DIFFERS, one)
        assert (found.verdict, found.departs_at, found.deviations) == ("match", None, ())
        assert found.max_abs_error == 4e-16
        assert found.explanation is not None and "the merge was not compared" in found.explanation


def test_a_wrong_merge_stays_a_difference(facts: SiteFacts) -> None:
    assert isinstance(facts.merge, Known)
    wrong = Known(replace(facts.merge.value, kind=LayoutKind.SCRAMBLED))
    assert without_own_order(DIFFERS, replace(facts, merge=wrong)) is DIFFERS


def test_other_differences_stay(facts: SiteFacts) -> None:
    scale = replace(MERGE, stage="scores", key="scale")
    for other in (
        Verdict("mismatch", "scores", (scale, MERGE)),
        replace(DIFFERS, unexplained=True),
        Verdict("match"),
    ):
        assert without_own_order(other, facts) is other
