"""Whether a later position reaches an earlier one."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.causal_facts import Causality
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Unknown
from mha_lint.targets.subject import Subject


def measure_causality(subject: Subject, bench: Bench, contract: Contract) -> Fact[Causality]:
    """Return which later positions reach earlier ones, and where."""
    del subject, bench, contract
    return Unknown("not measured")
