"""What a stated contract makes of findings."""

from __future__ import annotations

from mha_lint.model.contract import ContractEntry
from mha_lint.model.finding import Finding

ALLOWS: dict[str, tuple[str, ...]] = {
    "scale=none": ("MHA201", "MHA202"),
    "scale=mup": ("MHA202",),
    "normaliser=any": ("MHA205", "MHA206"),
    "over=batch": ("MHA601",),
    "no-output-projection": ("MHA101",),
    "self": ("MHA112",),
}
"""Findings that a stated contract turns into what was meant."""


def without_expected(
    findings: tuple[Finding, ...], contract: tuple[ContractEntry, ...]
) -> tuple[Finding, ...]:
    """Leave out what the stated contract says is meant."""
    allowed: set[str] = set()
    for entry in contract:
        if entry.source == "stated":
            text = entry.key if entry.value is True else f"{entry.key}={entry.value}"
            allowed |= set(ALLOWS.get(text, ()))
    return tuple(f for f in findings if f.code not in allowed)
