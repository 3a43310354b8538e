"""Masks that are given or built and hide nothing."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.mask_facts import IgnoredMask
from mha_lint.targets.subject import Subject


def ignored_masks(subject: Subject, bench: Bench) -> Fact[tuple[IgnoredMask, ...]]:
    """Return the masks of `subject` without any effect on attention."""
    del subject, bench
    return Unknown("not measured")
