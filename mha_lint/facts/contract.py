"""What the code is meant to be: stated by the user, else inferred from names."""

from __future__ import annotations

from mha_lint.model.contract import Contract, ContractEntry
from mha_lint.targets.subject import Subject


def contract_of(subject: Subject) -> Contract:
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
    return Contract(tuple(found))
