"""What becomes of a rule that yields, cannot tell, does not apply, or raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mha_lint.model.facts import (
    Kind,
    NotApplicable,
    SiteFacts,
    SiteInfo,
    SubjectFacts,
    Unknown,
)
from mha_lint.model.finding import Finding, Label, Severity, Undecided, Violation
from mha_lint.model.settings import PerFileIgnore, Settings
from mha_lint.model.source import Span
from mha_lint.rulebook.judge import judge
from mha_lint.rulebook.pack import LoadedRule

SiteMaker = Callable[[str, Callable[[SiteFacts], Iterator[Violation]]], LoadedRule]
SubjectMaker = Callable[[str, Callable[[SubjectFacts], Iterator[Violation]]], LoadedRule]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "a.py"
    path.write_text("class A:\n    x = 1\n    y = 2  # mha-lint: ignore[X003]\n    z = 3\n")
    return str(path)


def site(name: str, file: str, line: int, **facts: Any) -> SiteFacts:
    info = SiteInfo(name, "", Kind.SELF, {"site": Span(file, line, 5)})
    return SiteFacts(info=info, **facts)


@pytest.fixture
def facts(file: str) -> SubjectFacts:
    sites = (site("A.0", file, 2), site("A.1", file, 4))
    return SubjectFacts(name="A", span=Span(file, 1), sites=sites)


def says(message: str, **more: Any) -> Callable[[object], Iterator[Violation]]:
    def check(_facts: object) -> Iterator[Violation]:
        yield Violation(message, **more)

    return check


def test_a_site_rule_is_run_at_every_site(
    site_rule: SiteMaker, facts: SubjectFacts, settings: Settings
) -> None:
    judgement = judge([site_rule("X001", says("bad"))], facts, settings=settings)
    assert [(f.site, str(f.span)) for f in judgement.findings] == [
        ("A.0", "a.py:2:5"),
        ("A.1", "a.py:4:5"),
    ]
    assert {f.severity for f in judgement.findings} == {Severity.ERROR}


def test_a_subject_rule_is_run_once(
    subject_rule: SubjectMaker, facts: SubjectFacts, settings: Settings
) -> None:
    (found,) = judge([subject_rule("X001", says("bad"))], facts, settings=settings).findings
    assert (found.site, found.rule, str(found.span)) == (None, "rule-x001", "a.py:1:1")


def test_everything_that_a_violation_says_is_kept(
    site_rule: SiteMaker, facts: SubjectFacts, file: str, settings: Settings
) -> None:
    label = Label(Span(file, 1), "a label")
    violation = Violation(
        "m", at=Span(file, 2, 5, 2, 6), here="h", why="w", help="f", evidence=("e",),
        labels=(label,), severity=Severity.NOTE, confirm="identity: one storage", branch="b",
    )  # fmt: skip
    one = replace(facts, sites=facts.sites[:1])
    rule = site_rule("X001", lambda _: iter([violation]))
    (found,) = judge([rule], one, settings=settings).findings
    assert found == Finding(
        code="X001", rule="rule-x001", severity=Severity.NOTE, message="m",
        span=Span("a.py", 2, 5, 2, 6), site="A.0", branch="b", here="h", why="w", help="f",
        evidence=("e",), labels=(Label(Span("a.py", 1), "a label"),),
        confirmed_by="one storage", fingerprint=found.fingerprint,
    )  # fmt: skip


def test_a_rule_that_cannot_tell_is_undecided_and_keeps_what_it_said(
    site_rule: SiteMaker, facts: SubjectFacts, settings: Settings
) -> None:
    def check(here: SiteFacts) -> Iterator[Violation]:
        if here.info.id == "A.1":
            yield Violation("said before")
        yield Violation(str(here.dims.value))

    judgement = judge([site_rule("X001", check)], facts, settings=settings)
    assert judgement.undecided == (
        Undecided("X001", "A.0", "not measured"),
        Undecided("X001", "A.1", "not measured"),
    )
    assert [f.site for f in judgement.findings] == ["A.1"]


def test_a_fact_that_makes_no_sense_lets_the_rule_pass(
    site_rule: SiteMaker, file: str, settings: Settings
) -> None:
    def check(here: SiteFacts) -> Iterator[Violation]:
        yield Violation(str(here.scale.value))

    sites = (site("A.0", file, 2, scale=NotApplicable("additive")),
             site("A.1", file, 2, scale=Unknown("baked")))  # fmt: skip
    facts = SubjectFacts("A", None, sites)
    judgement = judge([site_rule("X001", check)], facts, settings=settings)
    assert judgement.undecided == (Undecided("X001", "A.1", "baked"),)
    assert (judgement.findings, judgement.crashes) == ((), ())


def test_a_rule_that_raises_is_a_crash_and_hides_no_other(
    site_rule: SiteMaker, facts: SubjectFacts, settings: Settings
) -> None:
    def check(_facts: SiteFacts) -> Iterator[Violation]:
        raise KeyError("merge")

    rules = [site_rule("X001", check), site_rule("X002", says("bad"))]
    judgement = judge(rules, facts, settings=settings, target="a.py::A")
    first, second = judgement.crashes
    assert (first.where, first.target) == ("rule X001 at A.0", "a.py::A")
    assert first.error == "KeyError: 'merge'"
    assert 'raise KeyError("merge")' in first.traceback
    assert second.where == "rule X001 at A.1"
    assert {f.code for f in judgement.findings} == {"X002"}


def test_sites_with_the_same_lines_say_it_once(
    site_rule: SiteMaker, file: str, settings: Settings
) -> None:
    layers = tuple(site(f"A.{i}", file, 2) for i in range(3))
    judgement = judge(
        [site_rule("X1", says("bad"))], SubjectFacts("A", None, layers), settings=settings
    )
    assert [f.site for f in judgement.findings] == ["A.0"]


def test_findings_are_sorted_by_place_then_code(
    site_rule: SiteMaker, facts: SubjectFacts, settings: Settings
) -> None:
    rules = [site_rule("X002", says("b")), site_rule("X001", says("a"))]
    found = judge(rules, facts, settings=settings).findings
    assert [(f.span.line, f.code) for f in found] == [
        (2, "X001"), (2, "X002"), (4, "X001"), (4, "X002"),
    ]  # fmt: skip


def test_the_engine_is_asked_for_the_proof(
    site_rule: SiteMaker, facts: SubjectFacts, settings: Settings
) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def confirm(where: str | None, violation: Violation) -> str | None:
        asked.append((where, violation.confirm))
        return "output equals" if where == "A.0" else None

    rule = site_rule("X001", says("bad", confirm="scale"))
    found = judge([rule], facts, settings=settings, confirm=confirm).findings
    assert asked == [("A.0", "scale"), ("A.1", "scale")]
    assert [f.confirmed_by for f in found] == ["output equals", None]


def test_a_suppressed_finding_stays(
    subject_rule: SubjectMaker, facts: SubjectFacts, file: str, settings: Settings
) -> None:
    rules = [
        subject_rule("X003", says("bad", at=Span(file, 3, 5))),
        subject_rule("X004", says("bad", at=Span(file, 3, 5))),
    ]
    found = judge(rules, facts, settings=settings).findings
    assert [(f.code, f.suppressed) for f in found] == [("X003", True), ("X004", False)]


def test_per_file_ignores_leave_a_finding_out(
    subject_rule: SubjectMaker, facts: SubjectFacts, settings: Settings
) -> None:
    ignoring = replace(settings, per_file_ignores=(PerFileIgnore("a.py", ("X003",), settings.cwd),))
    rules = [subject_rule("X003", says("bad")), subject_rule("X004", says("bad"))]
    assert [f.code for f in judge(rules, facts, settings=ignoring).findings] == ["X004"]


def test_the_users_severity_wins(
    subject_rule: SubjectMaker, facts: SubjectFacts, settings: Settings
) -> None:
    rule = subject_rule("X001", says("bad", severity=Severity.WARNING))
    own = replace(settings, severity=(("X001", Severity.NOTE),))
    assert judge([rule], facts, settings=settings).findings[0].severity is Severity.WARNING
    assert judge([rule], facts, settings=own).findings[0].severity is Severity.NOTE


def test_a_fingerprint_survives_edits_elsewhere_but_not_in_its_line(
    subject_rule: SubjectMaker, facts: SubjectFacts, file: str, settings: Settings
) -> None:
    def fingerprint(line: int) -> str:
        rule = subject_rule("X001", says("bad", at=Span(file, line, 5)))
        return judge([rule], facts, settings=settings).findings[0].fingerprint

    before = fingerprint(2)
    text = Path(file).read_text()
    Path(file).write_text("# a comment more\n" + text)
    assert fingerprint(3) == before
    Path(file).write_text("# a comment more\n" + text.replace("x = 1", "x = 11"))
    assert fingerprint(3) != before
    assert fingerprint(5) != before


def test_a_path_outside_the_working_directory_stays_absolute(
    subject_rule: SubjectMaker, facts: SubjectFacts, settings: Settings
) -> None:
    elsewhere = replace(settings, cwd=settings.cwd + "/a")
    rule = subject_rule("X001", says("bad"))
    assert judge([rule], facts, settings=elsewhere).findings[0].span.path == f"{settings.cwd}/a.py"


def test_a_subject_without_source_is_named(subject_rule: SubjectMaker, settings: Settings) -> None:
    facts = SubjectFacts("package:make", None, ())
    (found,) = judge([subject_rule("X001", says("bad"))], facts, settings=settings).findings
    assert str(found.span) == "package:make:1:1"
