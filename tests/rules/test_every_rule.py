"""What holds for every built-in rule: its name, silence on right code, and undecided otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import (
    NotApplicable,
    NotApplicableError,
    SiteFacts,
    SubjectFacts,
    Unknown,
    UnknownFactError,
)
from mha_lint.model.finding import Violation
from mha_lint.rulebook.pack import LoadedRule

Check: TypeAlias = Callable[[str, SiteFacts | SubjectFacts], list[Violation]]

CATALOGUE = {
    "MHA101": ("heads", "missing-output-projection", "error"),
    "MHA102": ("heads", "indivisible-width", "error"),
    "MHA103": ("heads", "mismatched-head-dims", "error"),
    "MHA104": ("heads", "scrambled-head-split", "error"),
    "MHA105": ("heads", "scrambled-head-merge", "error"),
    "MHA106": ("heads", "swapped-roles", "error"),
    "MHA107": ("heads", "shared-projection", "warning"),
    "MHA108": ("heads", "redundant-projection", "note"),
    "MHA109": ("heads", "unused-computation", "warning"),
    "MHA110": ("heads", "overwritten-input", "error"),
    "MHA112": ("heads", "wrong-cross-source", "warning"),
    "MHA113": ("heads", "transposed-weight", "error"),
    "MHA114": ("heads", "dead-projection", "warning"),
    "MHA115": ("heads", "detached-projection", "warning"),
    "MHA117": ("heads", "wrong-returned-weights", "warning"),
    "MHA118": ("heads", "mispaired-values", "error"),
    "MHA201": ("scores", "missing-scale", "error"),
    "MHA202": ("scores", "wrong-scale", "error"),
    "MHA203": ("scores", "scale-after-softmax", "error"),
    "MHA204": ("scores", "wrong-softmax-axis", "error"),
    "MHA205": ("scores", "missing-softmax", "error"),
    "MHA206": ("scores", "repeated-softmax", "error"),
    "MHA207": ("scores", "unstable-softmax", "warning"),
    "MHA301": ("masks", "mask-after-softmax", "error"),
    "MHA302": ("masks", "inverted-mask", "error"),
    "MHA303": ("masks", "mask-as-number", "error"),
    "MHA304": ("masks", "weak-mask-fill", "error"),
    "MHA305": ("masks", "mask-overflow", "error"),
    "MHA306": ("masks", "fully-masked-row", "warning"),
    "MHA307": ("masks", "ignored-mask", "error"),
    "MHA308": ("masks", "misaligned-mask", "error"),
    "MHA311": ("masks", "causal-cross-attention", "error"),
    "MHA312": ("masks", "padding-leak", "warning"),
    "MHA313": ("masks", "softcap-after-mask", "error"),
    "MHA314": ("masks", "unwanted-causal-mask", "warning"),
    "MHA401": ("dropout", "dropout-in-eval", "error"),
    "MHA402": ("dropout", "dropout-before-softmax", "warning"),
    "MHA403": ("dropout", "wrong-dropout-rate", "warning"),
    "MHA504": ("positions", "rope-precision", "warning"),
    "MHA501": ("positions", "rope-pairing", "error"),
    "MHA502": ("positions", "rope-wrong-axis", "error"),
    "MHA503": ("positions", "rope-on-values", "warning"),
    "MHA505": ("positions", "wrong-alibi-bias", "error"),
    "MHA506": ("positions", "wrong-relative-shift", "error"),
    "MHA507": ("positions", "rope-one-sided", "error"),
    "MHA508": ("positions", "wrong-positions", "warning"),
    "MHA511": ("groups", "gqa-head-mapping", "warning"),
    "MHA512": ("groups", "gqa-wrong-axis", "error"),
    "MHA601": ("isolation", "batch-leak", "error"),
    "MHA602": ("isolation", "attends-across-heads", "error"),
    "MHA901": ("numbers", "reference-mismatch", "warning"),
    "MHA902": ("numbers", "precision-loss", "error"),
}
CODES = list(CATALOGUE)

NEEDS = {
    "MHA101": ("output_projection",),
    "MHA102": ("truncation",),
    "MHA103": ("size_failures",),
    "MHA104": ("split_q", "split_k", "split_v"),
    "MHA105": ("merge",),
    "MHA106": ("roles",),
    "MHA107": ("roles",),
    "MHA108": ("stacked",),
    "MHA109": ("unused_modules",),
    "MHA110": ("overwritten",),
    "MHA112": ("unused_inputs",),
    "MHA113": ("size_failures",),
    "MHA114": ("learning",),
    "MHA115": ("learning",),
    "MHA117": ("returned",),
    "MHA118": ("pairing",),
    "MHA201": ("scale",),
    "MHA202": ("scale", "branch_scales"),
    "MHA203": ("scale",),
    "MHA204": ("normaliser",),
    "MHA205": ("normaliser",),
    "MHA206": ("normaliser",),
    "MHA207": ("stability",),
    "MHA301": ("masking",),
    "MHA302": ("mask_fit",),
    "MHA303": ("masking",),
    "MHA304": ("masking",),
    "MHA305": ("masking",),
    "MHA306": ("masking",),
    "MHA307": ("ignored_masks",),
    "MHA308": ("mask_fit",),
    "MHA311": ("mask_fit",),
    "MHA312": ("padding",),
    "MHA313": ("masking",),
    "MHA314": ("mask_fit",),
    "MHA401": ("dropouts",),
    "MHA402": ("dropouts",),
    "MHA403": ("training_dropout",),
    "MHA504": ("rotation_loss",),
    "MHA501": ("rotary",),
    "MHA502": ("rotary",),
    "MHA503": ("rotary",),
    "MHA505": ("position_bias",),
    "MHA506": ("position_bias",),
    "MHA507": ("rotary",),
    "MHA508": ("positions",),
    "MHA511": ("head_groups",),
    "MHA512": ("head_groups",),
    "MHA601": ("batch",),
    "MHA602": ("split_q", "split_k", "split_v"),
    "MHA901": ("crosscheck",),
    "MHA902": ("half_loss",),
}
"""The facts that a rule cannot do without at a right site."""


@pytest.fixture
def right(
    rules: dict[str, LoadedRule],
    site: Callable[..., SiteFacts],
    subject: Callable[..., SubjectFacts],
) -> Callable[[str], Any]:
    """Return a function that makes the right facts that the rule of a code is run on."""
    return lambda code: site() if rules[code].rule.site else subject()


@pytest.mark.parametrize("code", CODES)
def test_name_family_and_severity_are_those_of_the_catalogue(
    code: str, rules: dict[str, LoadedRule]
) -> None:
    loaded = rules[code]
    assert (loaded.path.parent.name, loaded.name, loaded.rule.severity.value) == CATALOGUE[code]
    assert loaded.path.stem == loaded.name.replace("-", "_")


@pytest.mark.parametrize("code", CODES)
def test_right_facts_give_nothing(code: str, check: Check, right: Callable[[str], Any]) -> None:
    assert check(code, right(code)) == []


@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for code, names in NEEDS.items() for name in names]
)
def test_undecided_while_a_needed_fact_is_unknown(
    code: str, name: str, check: Check, right: Callable[[str], Any]
) -> None:
    with pytest.raises(UnknownFactError, match="not traced"):
        check(code, replace(right(code), **{name: Unknown("not traced")}))


@pytest.mark.parametrize("code", CODES)
def test_no_other_fact_is_needed_at_a_right_site(
    code: str, check: Check, right: Callable[[str], Any]
) -> None:
    facts = right(code)
    others = {
        f.name: Unknown("not traced")
        for f in fields(facts)
        if f.name not in ("info", "name", "span", "sites", *NEEDS[code])
    }
    assert check(code, replace(facts, **others)) == []


@pytest.mark.parametrize("code", CODES)
def test_passes_where_nothing_applies(code: str, check: Check, right: Callable[[str], Any]) -> None:
    facts = right(code)
    nothing = {name: NotApplicable("no such thing here") for name in NEEDS[code]}
    try:
        found = check(code, replace(facts, **nothing))
    except NotApplicableError:
        return
    assert found == []
