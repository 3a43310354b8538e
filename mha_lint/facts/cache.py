"""Whether decoding with a cache agrees with one call on the whole sequence."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.causal_facts import CacheCheck, StateCheck
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Unknown
from mha_lint.targets.subject import Subject


def measure_cache(subject: Subject, bench: Bench, contract: Contract) -> Fact[CacheCheck]:
    """Return how cached decoding departs from the full forward."""
    del subject, bench, contract
    return Unknown("not measured")


def measure_state(subject: Subject, bench: Bench) -> Fact[StateCheck]:
    """Return what one call changes for the next."""
    del subject, bench
    return Unknown("not measured")
