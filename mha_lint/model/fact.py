"""The three states of a fact.

A fact is `Known` (with the evidence for it), `NotApplicable` (the question makes no sense here, with
the reason) or `Unknown` (it could not be measured, with the reason). A rule just asks for
``.value``: on an unknown fact that raises `UnknownFactError`, and the rulebook reports the rule as
undecided there; on a not applicable one `NotApplicableError`, and the rule passes. So a rule never
mistakes "could not tell" for "fine".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NoReturn, TypeAlias, TypeVar

T = TypeVar("T")


class UnknownFactError(Exception):
    """A rule asked for a fact that could not be measured; its text says why."""


class NotApplicableError(Exception):
    """A rule asked for a fact that makes no sense at this site; its text says why."""


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A fact that was measured, and the sentence that lets a reader repeat the measurement."""

    value: T
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A fact that makes no sense here, and why."""

    why: str

    @property
    def value(self) -> NoReturn:
        """Leave the rule that asked: it passes at this site."""
        raise NotApplicableError(self.why)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be measured, and why."""

    why: str

    @property
    def value(self) -> NoReturn:
        """Leave the rule that asked: it is undecided at this site."""
        raise UnknownFactError(self.why)


Fact: TypeAlias = Known[T] | NotApplicable | Unknown
