"""What training mode does: dropout, and who learns."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.numeric_facts import Learning, TrainingDropout
from mha_lint.targets.subject import Subject


def training_dropout(subject: Subject, bench: Bench) -> Fact[tuple[TrainingDropout, ...]]:
    """Return the dropouts that act in training mode beside what was configured."""
    del subject, bench
    return Unknown("not measured")


def measure_learning(subject: Subject, bench: Bench) -> Fact[Learning]:
    """Return the projections that no gradient reaches, and constant ones."""
    del subject, bench
    return Unknown("not measured")
