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
    "MHA112": ("heads", "wrong-cross-source", "error"),
    "MHA113": ("heads", "transposed-weight", "error"),
    "MHA201": ("scores", "missing-scale", "error"),
    "MHA202": ("scores", "wrong-scale", "error"),
    "MHA203": ("scores", "scale-after-softmax", "error"),
    "MHA204": ("scores", "wrong-softmax-axis", "error"),
    "MHA205": ("scores", "missing-softmax", "error"),
    "MHA206": ("scores", "repeated-softmax", "error"),
    "MHA401": ("dropout", "dropout-in-eval", "error"),
    "MHA402": ("dropout", "dropout-before-softmax", "warning"),
    "MHA601": ("isolation", "batch-leak", "error"),
    "MHA602": ("isolation", "attends-across-heads", "error"),
    "MHA901": ("numbers", "reference-mismatch", "warning"),
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
    "MHA201": ("scale",),
    "MHA202": ("scale", "branch_scales"),
    "MHA203": ("scale",),
    "MHA204": ("normaliser",),
    "MHA205": ("normaliser",),
    "MHA206": ("normaliser",),
    "MHA401": ("dropouts",),
    "MHA402": ("dropouts",),
    "MHA601": ("batch",),
    "MHA602": ("split_q", "split_k", "split_v"),
    "MHA901": ("crosscheck",),
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
