"""Facts of a right site and a right subject, from which each test departs in one fact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mha_lint.model.facts import (
    BatchMixing,
    Dims,
    DropoutUse,
    Kind,
    Known,
    Layout,
    LayoutKind,
    Normaliser,
    OutputProjection,
    Projection,
    Roles,
    Scale,
    SiteFacts,
    SiteInfo,
    SubjectFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.mask_facts import Masking
from mha_lint.model.mask_fit_facts import MaskFit
from mha_lint.model.numeric_facts import (
    HalfLoss,
    Learning,
    ReturnedWeights,
    RotationLoss,
    Stability,
)
from mha_lint.model.position_facts import HeadGroups, Pairing, PositionBias, Rotary
from mha_lint.model.source import Span
from mha_lint.rulebook.pack import LoadedRule, builtin_pack, load_pack

_LINES = {
    "q": 10,
    "k": 11,
    "v": 12,
    "split_q": 13,
    "split_k": 14,
    "split_v": 15,
    "site": 20,
    "scores": 20,
    "scale": 21,
    "mask": 22,
    "softmax": 23,
    "value": 24,
    "merge": 25,
    "output": 26,
}


@pytest.fixture(scope="session")
def rules() -> dict[str, LoadedRule]:
    """Return the built-in rules by code."""
    return {loaded.rule.code: loaded for loaded in load_pack(builtin_pack())}


@pytest.fixture
def at() -> Callable[[int], Span]:
    """Return a function that makes the place of a line of attention.py."""
    return lambda line: Span("attention.py", line)


@pytest.fixture
def site(at: Callable[[int], Span]) -> Callable[..., SiteFacts]:
    """Return a function that makes the facts of a right self-attention site, some replaced."""

    def make(*, kind: Kind = Kind.SELF, module: str = "", **changed: Any) -> SiteFacts:
        info = SiteInfo("MHA.0", module, kind, {role: at(n) for role, n in _LINES.items()})
        return replace(_right(info, at), **changed)

    return make


@pytest.fixture
def subject(at: Callable[[int], Span], site: Callable[..., SiteFacts]) -> Callable[..., Any]:
    """Return a function that makes the facts of a right subject, some replaced."""

    def make(**changed: Any) -> SubjectFacts:
        right = SubjectFacts(
            name="MHA",
            span=at(1),
            sites=(site(),),
            batch=Known(BatchMixing(False, 0, "it is the leading axis", 0.0, None), "batch"),
            deterministic=Known(True, "deterministic"),
            dropouts=Known((), "dropouts"),
            unused_inputs=Known((), "unused inputs"),
            unused_modules=Known((), "unused modules"),
            truncation=Known(None, "truncation"),
            size_failures=Known((), "size failures"),
            crosscheck=Known((), "cross-check"),
            training_dropout=Known((), "training dropout"),
            learning=Known(Learning(), "learning"),
            positions=Known(None, "positions"),
            padding=Known(None, "padding"),
            ignored_masks=Known((), "ignored masks"),
        )
        return replace(right, **changed)

    return make


@pytest.fixture
def check(
    rules: dict[str, LoadedRule],
) -> Callable[[str, SiteFacts | SubjectFacts], list[Violation]]:
    """Return a function that runs the rule of a code over facts."""

    def run(code: str, facts: SiteFacts | SubjectFacts) -> list[Violation]:
        rule = rules[code].rule
        if isinstance(facts, SiteFacts):
            assert rule.site is not None
            return list(rule.site(facts))
        assert rule.subject is not None
        return list(rule.subject(facts))

    return run


def _right(info: SiteInfo, at: Callable[[int], Span]) -> SiteFacts:
    def projection(name: str) -> tuple[Projection, ...]:
        return (Projection(f"{name}.weight", ("x",), None, 24, 24),)

    def split(operand: str) -> Known[Layout]:
        return Known(Layout(LayoutKind.RIGHT, operand), f"split {operand}")

    return SiteFacts(
        info=info,
        dims=Known(Dims(24, 4, 4, 6, 6, 7, 7, 3), "dims"),
        scale=Known(
            Scale(6**-0.5, 6**-0.5, "1/sqrt(head_dim)", right=True, init_ratio=1.02), "scale"
        ),
        normaliser=Known(
            Normaliser("softmax", ("keys",), (3,), "(B, h, T_q, T_k)", (1.0, 1.0)), "normaliser"
        ),
        split_q=split("q"),
        split_k=split("k"),
        split_v=split("v"),
        merge=Known(Layout(LayoutKind.RIGHT, "context"), "merge"),
        roles=Known(Roles(projection("query"), projection("key"), projection("value")), "roles"),
        output_projection=Known(
            OutputProjection(True, "output.weight", mixes=True, span=at(26), width=24), "output"
        ),
        stacked=Known((), "stacked"),
        dropouts=Known((DropoutUse("weights", 0.1, False, at(23)),), "dropouts"),
        branch_scales=Known((), "branches"),
        branch_masks=Known((), "branches"),
        overwritten=Known((), "overwritten"),
        stability=Known(Stability(), "stability"),
        returned=Known(ReturnedWeights(), "returned"),
        rotation_loss=Known(
            RotationLoss("float16", 1e-4, 5, 7, 4.9e-4, True, None), "rotation loss"
        ),
        half_loss=Known(HalfLoss("float16", 1.1, 2.0, 1.1e-3, 1e-3, 16), "half loss"),
        rotary=Known(Rotary(("q", "k")), "rotary"),
        position_bias=Known(PositionBias(), "position bias"),
        head_groups=Known(
            HeadGroups(4, 4, (0, 1, 2, 3), (0, 1, 2, 3), "each", at(14)), "head groups"
        ),
        pairing=Known(Pairing(True), "pairing"),
        masking=Known(Masking(), "masking"),
        mask_fit=Known(MaskFit(), "mask fit"),
    )
