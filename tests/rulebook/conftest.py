"""Made-up rules and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mha_lint.model.facts import SiteFacts, SubjectFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.rule import Rule
from mha_lint.model.settings import Settings
from mha_lint.rulebook.pack import LoadedRule

SiteCheck = Callable[[SiteFacts], Iterator[Violation]]
SubjectCheck = Callable[[SubjectFacts], Iterator[Violation]]


def make_rule(
    code: str, site: SiteCheck | None = None, subject: SubjectCheck | None = None
) -> LoadedRule:
    rule = Rule(code, Severity.ERROR, "0.1", site=site, subject=subject)
    return LoadedRule(rule, f"rule-{code.lower()}", Path("x.py"), "Doc.")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cwd=str(tmp_path))


@pytest.fixture
def site_rule() -> Callable[[str, SiteCheck], LoadedRule]:
    return lambda code, check: make_rule(code, site=check)


@pytest.fixture
def subject_rule() -> Callable[[str, SubjectCheck], LoadedRule]:
    return lambda code, check: make_rule(code, subject=check)
