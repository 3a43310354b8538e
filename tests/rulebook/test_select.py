"""Selectors: which rules run, where they count, how severe they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mha_lint.model.finding import Severity
from mha_lint.model.settings import PerFileIgnore, Settings
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.rulebook.select import UnknownRuleError, ignored_in, select_rules, severity_of

CODES = ["MHA101", "MHA102", "MHA201", "MHA202", "MHA901"]


@pytest.fixture
def rules(site_rule: Callable[..., LoadedRule]) -> list[LoadedRule]:
    return [site_rule(code, lambda _: iter(())) for code in CODES]


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({}, CODES),
        ({"select": ("MHA2",)}, ["MHA201", "MHA202"]),
        ({"select": ("MHA2", "MHA101")}, ["MHA101", "MHA201", "MHA202"]),
        ({"ignore": ("MHA2",)}, ["MHA101", "MHA102", "MHA901"]),
        ({"ignore": ("MHA",), "select": ("MHA2",)}, ["MHA201", "MHA202"]),
        ({"ignore": ("MHA201",), "select": ("MHA2",)}, ["MHA202"]),
        ({"ignore": ("MHA2",), "select": ("MHA2",)}, []),
        ({"ignore": ("MHA2",), "extend_select": ("MHA201",)}, CODES[:3] + CODES[4:]),
        ({"select": ("MHA101",), "extend_select": ("MHA9",)}, ["MHA101", "MHA901"]),
        ({"select": ()}, []),
        ({"ignore": ("ALL",)}, []),
    ],
)  # fmt: skip
def test_selection(
    options: dict[str, Any], codes: list[str], rules: list[LoadedRule], settings: Settings
) -> None:
    assert [r.code for r in select_rules(rules, replace(settings, **options))] == codes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"select": ("MHA299",)}, "select: no rule 'MHA299'; there are MHA201, MHA202"),
        ({"ignore": ("E501",)}, "ignore: no rule 'E501'; mha-lint rules lists them all"),
        ({"extend_select": ("MAH101",)}, "extend-select: no rule 'MAH101'; did you mean MHA101"),
        ({"select": ("",)}, "select: no rule ''"),
        ({"severity": (("MHA5", Severity.NOTE),)}, "severity: no rule 'MHA5'"),
        (
            {"per_file_ignores": (PerFileIgnore("t5.py", ("MHA5",), "/"),)},
            "per-file-ignores of t5.py: no rule 'MHA5'",
        ),
    ],
)
def test_an_unknown_selector_is_named(
    options: dict[str, Any], says: str, rules: list[LoadedRule], settings: Settings
) -> None:
    with pytest.raises(UnknownRuleError) as caught:
        select_rules(rules, replace(settings, **options))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("t5.py", "/p/models/t5.py", True),
        ("models/t5.py", "/p/models/t5.py", True),
        ("models/*.py", "/p/models/t5.py", True),
        ("*/t5.py", "/p/models/t5.py", True),
        ("/p/models/t5.py", "/p/models/t5.py", True),
        ("models/t5.py", "/q/models/t5.py", False),
        ("t", "/p/models/t5.py", False),
        ("T5.py", "/p/models/t5.py", False),
    ],
)
def test_per_file_patterns(pattern: str, path: str, ignored: bool) -> None:
    entries = [PerFileIgnore(pattern, ("MHA2",), "/p")]
    assert ignored_in(path, "MHA201", entries) is ignored
    assert not ignored_in(path, "MHA101", entries)


def test_the_most_specific_severity_wins(settings: Settings) -> None:
    own = (("MHA201", Severity.NOTE), ("MHA2", Severity.WARNING), ("ALL", Severity.ERROR))
    for order in (own, own[::-1]):
        chosen = replace(settings, severity=order)
        levels = [severity_of(c, Severity.NOTE, chosen) for c in ("MHA201", "MHA202", "MHA101")]
        assert levels == [Severity.NOTE, Severity.WARNING, Severity.ERROR]
    assert severity_of("MHA201", Severity.WARNING, settings) is Severity.WARNING


def test_of_two_severities_the_later_wins(settings: Settings) -> None:
    twice = (("MHA201", Severity.NOTE), ("MHA201", Severity.ERROR))
    assert (
        severity_of("MHA201", Severity.WARNING, replace(settings, severity=twice)) is Severity.ERROR
    )
