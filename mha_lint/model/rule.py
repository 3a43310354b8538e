"""A rule: identity and a pure check; its documentation is its file's docstring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from mha_lint.model.facts import SiteFacts, SubjectFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.suppression import SuppressionUse

SiteCheck: TypeAlias = Callable[[SiteFacts], Iterator[Violation]]
SubjectCheck: TypeAlias = Callable[[SubjectFacts], Iterator[Violation]]
CommentCheck: TypeAlias = Callable[[SuppressionUse], Iterator[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: exactly one of ``site`` (run at every site), ``subject`` (run once) and
    ``comment`` (run on every suppression comment, when all targets are judged) is set.
    """

    code: str
    severity: Severity
    since: str
    site: SiteCheck | None = None
    subject: SubjectCheck | None = None
    comment: CommentCheck | None = None
