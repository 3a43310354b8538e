"""What the code is meant to be: stated by the user, else inferred from names."""

from __future__ import annotations

from mha_lint.model.finding import Finding
from mha_lint.model.report import ContractEntry
from mha_lint.targets.subject import Subject

ALLOWS: dict[str, tuple[str, ...]] = {
    "scale=none": ("MHA201", "MHA202"),
    "scale=mup": ("MHA202",),
    "normaliser=any": ("MHA205", "MHA206"),
    "over=batch": ("MHA601",),
    "no-output-projection": ("MHA101",),
    "self": ("MHA112",),
}
"""Findings that a stated contract turns into what was meant."""


def contract_of(subject: Subject) -> tuple[ContractEntry, ...]:
    """Return the contract: what was stated, then what the class name says."""
    found: list[ContractEntry] = []
    for entry in subject.spec.expect:
        key, _, value = entry.partition("=")
        found.append(ContractEntry(key, value or True, "stated"))
    stated = {e.key for e in found}
    name = subject.name.lower()
    for key, words in (("causal", ("causal", "autoregressive")), ("cross", ("crossatt",))):
        if key not in stated and any(w in name for w in words):
            found.append(ContractEntry(key, True, f"class name {subject.name}"))
    return tuple(found)


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
