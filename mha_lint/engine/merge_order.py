"""An order of merged heads that the reference does not have, and that is no fault."""

from __future__ import annotations

from dataclasses import replace

from mha_lint.model.facts import Known, LayoutKind, SiteFacts
from mha_lint.oracle import Verdict


def without_own_order(verdict: Verdict, facts: SiteFacts) -> Verdict:
    """Return `verdict` without an order of merged heads that is measured to be no fault.

    Code may keep rows or heads in an order of its own, as long as its W_O reads them so.
    """
    keys = {d.key.partition(":")[0] for d in verdict.deviations}
    wrong = isinstance(facts.merge, Known) and facts.merge.value.kind is not LayoutKind.RIGHT
    if wrong or verdict.unexplained or verdict.departs_at != "output" or keys != {"merge"}:
        return verdict
    why = "the merge was not compared: rows or heads stand in an order of their own behind it"
    return replace(
        verdict,
        verdict="match",
        departs_at=None,
        deviations=(),
        max_abs_error=verdict.deviations[0].max_difference,
        explanation=why,
    )
