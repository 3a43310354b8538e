"""All that a rule file may import.

Names re-exported with ``as`` are public; a rule file needs no other module of mha-lint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mha_lint.model.causal_facts import CacheCheck as CacheCheck
from mha_lint.model.causal_facts import CausalFault as CausalFault
from mha_lint.model.causal_facts import Causality as Causality
from mha_lint.model.causal_facts import Leak as Leak
from mha_lint.model.causal_facts import Misalignment as Misalignment
from mha_lint.model.causal_facts import StateCheck as StateCheck
from mha_lint.model.contract import Contract as Contract
from mha_lint.model.contract import ContractEntry as ContractEntry
from mha_lint.model.facts import BatchMixing as BatchMixing
from mha_lint.model.facts import BranchMask as BranchMask
from mha_lint.model.facts import BranchScale as BranchScale
from mha_lint.model.facts import Dims as Dims
from mha_lint.model.facts import DropoutUse as DropoutUse
from mha_lint.model.facts import Fact as Fact
from mha_lint.model.facts import Kind as Kind
from mha_lint.model.facts import Known as Known
from mha_lint.model.facts import Layout as Layout
from mha_lint.model.facts import LayoutKind as LayoutKind
from mha_lint.model.facts import Normaliser as Normaliser
from mha_lint.model.facts import NotApplicable as NotApplicable
from mha_lint.model.facts import OutputProjection as OutputProjection
from mha_lint.model.facts import Projection as Projection
from mha_lint.model.facts import Roles as Roles
from mha_lint.model.facts import Scale as Scale
from mha_lint.model.facts import ScaleFactor as ScaleFactor
from mha_lint.model.facts import SiteFacts as SiteFacts
from mha_lint.model.facts import SiteInfo as SiteInfo
from mha_lint.model.facts import SizeFailure as SizeFailure
from mha_lint.model.facts import Stacked as Stacked
from mha_lint.model.facts import SubjectFacts as SubjectFacts
from mha_lint.model.facts import Truncation as Truncation
from mha_lint.model.facts import Unknown as Unknown
from mha_lint.model.facts import UnknownFactError as UnknownFactError
from mha_lint.model.facts import UnusedInput as UnusedInput
from mha_lint.model.finding import Label as Label
from mha_lint.model.finding import Severity as Severity
from mha_lint.model.finding import Violation as Violation
from mha_lint.model.mask_facts import EmptyRows as EmptyRows
from mha_lint.model.mask_facts import IgnoredMask as IgnoredMask
from mha_lint.model.mask_facts import LateMask as LateMask
from mha_lint.model.mask_facts import Masking as Masking
from mha_lint.model.mask_facts import MaskNumber as MaskNumber
from mha_lint.model.mask_facts import MaskOverflow as MaskOverflow
from mha_lint.model.mask_facts import MaskStep as MaskStep
from mha_lint.model.mask_facts import Squashed as Squashed
from mha_lint.model.mask_facts import WeakFill as WeakFill
from mha_lint.model.mask_fit_facts import Inversion as Inversion
from mha_lint.model.mask_fit_facts import MaskFit as MaskFit
from mha_lint.model.mask_fit_facts import Misplaced as Misplaced
from mha_lint.model.mask_fit_facts import PaddingLeak as PaddingLeak
from mha_lint.model.mask_fit_facts import Triangle as Triangle
from mha_lint.model.numeric_facts import AddedToSum as AddedToSum
from mha_lint.model.numeric_facts import Dead as Dead
from mha_lint.model.numeric_facts import Detached as Detached
from mha_lint.model.numeric_facts import HalfLoss as HalfLoss
from mha_lint.model.numeric_facts import Learning as Learning
from mha_lint.model.numeric_facts import Overflow as Overflow
from mha_lint.model.numeric_facts import RateFault as RateFault
from mha_lint.model.numeric_facts import ReturnedWeights as ReturnedWeights
from mha_lint.model.numeric_facts import ReturnFault as ReturnFault
from mha_lint.model.numeric_facts import RotationLoss as RotationLoss
from mha_lint.model.numeric_facts import Stability as Stability
from mha_lint.model.numeric_facts import TrainingDropout as TrainingDropout
from mha_lint.model.position_facts import HeadGroups as HeadGroups
from mha_lint.model.position_facts import PairFault as PairFault
from mha_lint.model.position_facts import Pairing as Pairing
from mha_lint.model.position_facts import PositionBias as PositionBias
from mha_lint.model.position_facts import RepeatedPositions as RepeatedPositions
from mha_lint.model.position_facts import Rotary as Rotary
from mha_lint.model.position_facts import SlopeFault as SlopeFault
from mha_lint.model.position_facts import UnevenTurns as UnevenTurns
from mha_lint.model.position_facts import WrongPairs as WrongPairs
from mha_lint.model.position_facts import WrongRepeat as WrongRepeat
from mha_lint.model.position_facts import WrongShift as WrongShift
from mha_lint.model.position_facts import WrongSlopes as WrongSlopes
from mha_lint.model.position_facts import WrongTurnAxis as WrongTurnAxis
from mha_lint.model.rule import CommentCheck as CommentCheck
from mha_lint.model.rule import Rule as Rule
from mha_lint.model.rule import SiteCheck as SiteCheck
from mha_lint.model.rule import SubjectCheck as SubjectCheck
from mha_lint.model.source import Span as Span
from mha_lint.model.suppression import SuppressionUse as SuppressionUse

T = TypeVar("T")


def site_rule(code: str, *, severity: Severity, since: str) -> Callable[[SiteCheck], Rule]:
    """Make the decorated function a `Rule` that is run at every attention site."""

    def make(check: SiteCheck) -> Rule:
        return Rule(code=code, severity=severity, since=since, site=check)

    return make


def subject_rule(code: str, *, severity: Severity, since: str) -> Callable[[SubjectCheck], Rule]:
    """Make the decorated function a `Rule` that is run once on the whole subject."""

    def make(check: SubjectCheck) -> Rule:
        return Rule(code=code, severity=severity, since=since, subject=check)

    return make


def comment_rule(code: str, *, severity: Severity, since: str) -> Callable[[CommentCheck], Rule]:
    """Make the decorated function a `Rule` that is run on every suppression comment."""

    def make(check: CommentCheck) -> Rule:
        return Rule(code=code, severity=severity, since=since, comment=check)

    return make


def evidence_of(*facts: Fact[T]) -> tuple[str, ...]:
    """Return what was measured to know `facts`, one sentence each, for a violation's evidence."""
    told = (fact.evidence for fact in facts if isinstance(fact, Known) and fact.evidence)
    return tuple(dict.fromkeys(told))


def known_among(*facts: Fact[T]) -> tuple[T, ...]:
    """Return the values of those of `facts` that are known.

    For a rule that can judge one operand without the others; it must call `settle` on the same
    facts afterwards, so that the site does not pass while one of them is unknown.
    """
    return tuple(fact.value for fact in facts if isinstance(fact, Known))


def settle(*facts: Fact[T]) -> None:
    """Leave the rule undecided if one of `facts` is unknown.

    Raises:
        UnknownFactError: with the reason of the first unknown one.
    """
    for fact in facts:
        if isinstance(fact, Unknown):
            raise UnknownFactError(fact.why)
