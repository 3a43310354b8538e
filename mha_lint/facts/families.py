"""Add to the facts of a site and of a subject what each family measures: masks, positions, numbers."""

from __future__ import annotations

import dataclasses

from mha_lint.facts.bench import Bench
from mha_lint.facts.cache import measure_cache, measure_state
from mha_lint.facts.causal.directions import with_directions
from mha_lint.facts.causality import measure_causality
from mha_lint.facts.groups import measure_groups
from mha_lint.facts.key_values import measure_pairing
from mha_lint.facts.learning import measure_learning
from mha_lint.facts.masks.fit import measure_mask_fit
from mha_lint.facts.masks.ignored import ignored_masks
from mha_lint.facts.masks.masking import measure_masking
from mha_lint.facts.masks.padding import measure_padding
from mha_lint.facts.positions.absolute import measure_absolute
from mha_lint.facts.positions.bias import measure_bias
from mha_lint.facts.positions.rotary import measure_rotary
from mha_lint.facts.returned import measure_returned
from mha_lint.facts.rotation_loss import measure_rotation_loss
from mha_lint.facts.stability import measure_stability
from mha_lint.facts.training import training_dropout
from mha_lint.model.contract import Contract
from mha_lint.model.facts import SiteFacts, SubjectFacts, Unknown
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject


def with_families(
    subject: Subject, bench: Bench, site: Site, facts: SiteFacts, contract: Contract
) -> SiteFacts:
    """Return `facts` with what masks, positions, groups and numbers do at `site`."""
    found = dataclasses.replace(
        facts,
        masking=measure_masking(bench, site, guessed=_guessed(subject)),
        mask_fit=measure_mask_fit(subject, bench, site, contract),
        rotary=measure_rotary(bench, site),
        position_bias=measure_bias(bench, site, guessed=_guessed(subject)),
        head_groups=measure_groups(bench, site),
        pairing=measure_pairing(bench, site),
        stability=measure_stability(bench, site),
        returned=measure_returned(bench, site),
        rotation_loss=measure_rotation_loss(bench, site),
        contract=contract,
    )
    return with_directions(subject, bench, site, found, contract)


def with_subject_families(subject: Subject, bench: Bench, facts: SubjectFacts) -> SubjectFacts:
    """Return `facts` with what masks, causality, caches and training do over the whole subject."""
    contract = facts.contract
    return dataclasses.replace(
        facts,
        ignored_masks=ignored_masks(subject, bench),
        padding=measure_padding(subject, bench, contract),
        positions=measure_absolute(bench),
        causality=measure_causality(subject, bench, contract),
        cache=measure_cache(subject, bench, contract),
        state=measure_state(subject, bench),
        training_dropout=training_dropout(subject, bench),
        learning=measure_learning(subject, bench),
    )


def without_calls(bench: Bench, facts: SubjectFacts, why: str) -> SubjectFacts:
    """Return `facts` of a subject that cannot be called again: what takes a call of it is open."""
    unknown = Unknown(why)
    return dataclasses.replace(
        facts,
        ignored_masks=unknown,
        padding=unknown,
        positions=measure_absolute(bench),
        causality=unknown,
        cache=unknown,
        state=unknown,
        training_dropout=unknown,
        learning=unknown,
    )


def _guessed(subject: Subject) -> bool:
    """Return whether the arguments of the call were made up, and masks among them."""
    return subject.how in ("built", "inferred") and subject.spec.call is None
