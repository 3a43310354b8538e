"""What proves a violation: the oracle, two runs that differ, or an identity in words."""

from __future__ import annotations

from collections.abc import Sequence

from mha_lint.engine.crosscheck import CheckedSite
from mha_lint.model.facts import Known, SubjectFacts
from mha_lint.model.finding import Violation
from mha_lint.oracle import confirm
from mha_lint.rulebook.judge import Confirm, in_words


def prover(checked: Sequence[CheckedSite], facts: SubjectFacts) -> Confirm:
    """Return what proves a violation: the oracle, else two runs that show a wrong split."""
    verdicts = {c.report.site: c.verdict for c in checked}
    sites = {one.info.id: one for one in facts.sites}

    def prove(site: str | None, violation: Violation) -> str | None:
        said = in_words(site, violation)
        if said is not None or violation.confirm is None:
            return said
        verdict = verdicts.get(site or "")
        found = confirm(verdict, violation.confirm) if verdict is not None else None
        kind, _, which = violation.confirm.partition(":")
        if found is not None or kind != "split" or site not in sites:
            return found
        split = getattr(sites[site], f"split_{which}", None)
        return (split.value.witness or None) if isinstance(split, Known) else None

    return prove
