"""MHA002: a suppression comment that suppresses nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_lint.model.finding import Severity, Violation
from mha_lint.model.source import Span
from mha_lint.model.suppression import SuppressionUse
from mha_lint.rulebook.pack import LoadedRule


@pytest.fixture
def told(rules: dict[str, LoadedRule]) -> Callable[[SuppressionUse], list[Violation]]:
    """Return what the rule says of one comment."""
    comment = rules["MHA002"].rule.comment
    assert comment is not None
    return lambda use: list(comment(use))


def test_its_name_and_family(rules: dict[str, LoadedRule]) -> None:
    loaded = rules["MHA002"]
    assert (loaded.path.parent.name, loaded.name) == ("targets", "unused-suppression")
    assert loaded.rule.severity is Severity.WARNING
    assert (loaded.rule.site, loaded.rule.subject) == (None, None)


def test_a_comment_that_hides_nothing(told: Callable[[SuppressionUse], list[Violation]]) -> None:
    at = Span("attention.py", 12, 40, 12, 70)
    assert told(SuppressionUse(at, ("MHA202",), ("MHA202",))) == [
        Violation(
            "the comment suppresses MHA202, of which nothing is found on this line",
            at=at,
            here="suppresses nothing",
            why="the next finding here would be hidden by it",
            help="delete the comment",
            confirm="identity: MHA202 ran on all of the file, and found nothing there",
        )
    ]


def test_one_of_several_codes(told: Callable[[SuppressionUse], list[Violation]]) -> None:
    use = SuppressionUse(Span("a.py", 3), ("MHA2", "MHA401"), ("MHA401",), "the class")
    (found,) = told(use)
    assert found.message == "the comment suppresses MHA401, of which nothing is found in the class"
    assert found.help == "keep ignore[MHA2] only"
