"""Whether a later position reaches an earlier one, and what lets it.

What the code is meant to be is told by its own masks (a site that hides all later keys), by what
the user states, or by names; the last alone is weak, and the fact says so.
"""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.faults import faults_of
from mha_lint.facts.causal.intent import meant_causal, texts
from mha_lint.facts.causal.offset import misalignments
from mha_lint.facts.causal.patterns import Pattern
from mha_lint.facts.causal.view import View
from mha_lint.facts.causal.whole import faults_without_squares
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.causal_facts import CausalFault, Causality
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Known, NotApplicable
from mha_lint.targets.subject import Subject


def measure_causality(subject: Subject, bench: Bench, contract: Contract) -> Fact[Causality]:
    """Return which later positions reach earlier ones, and where."""
    return _measured(bench, subject, contract)


@unless_data_decides
def _measured(bench: Bench, subject: Subject, contract: Contract) -> Fact[Causality]:
    view = View.of(bench)
    misaligned = tuple(misalignments(bench))
    patterns = tuple(_name(p) for p in view.patterns)
    denied = contract.denies("causal") or contract.states("bidirectional")
    if not view.selves:
        around = [] if denied else faults_without_squares(subject, bench, contract)
        if misaligned or around:
            found = Causality(
                patterns, None, around[0].leak if around else None, tuple(around), misaligned
            )
            return Known(found, "measured at the sites")
        return NotApplicable("no site has as many keys as queries from the same positions")
    faults: list[CausalFault] = []
    if not denied:
        meant = meant_causal(subject, bench, view.selves, contract)
        faults = faults_of(view, meant, texts(subject, bench, view.selves))
    leak, causal = view.whole()
    return Known(
        Causality(patterns, causal, leak, tuple(faults), misaligned),
        str(leak) if leak is not None else _evidence(causal),
    )


def _name(patterns: list[Pattern]) -> str:
    if not patterns:
        return ""
    return patterns[0].value if len(set(patterns)) == 1 else Pattern.OTHER.value


def _evidence(causal: bool | None) -> str:
    if causal is None:
        return "no output has a row for each position"
    return "no position that was moved changes an earlier output"
