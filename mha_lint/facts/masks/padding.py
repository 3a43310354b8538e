"""Whether padded positions reach real ones."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.mask_fit_facts import PaddingLeak
from mha_lint.targets.subject import Subject


def measure_padding(subject: Subject, bench: Bench, contract: Contract) -> Fact[PaddingLeak | None]:
    """Return the padded positions of the call that reach real ones, None if there are none."""
    del subject, bench, contract
    return Unknown("not measured")
