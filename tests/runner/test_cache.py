"""A kept report counts only while everything that it rests on is as it was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from mha_lint.model.finding import Crash, Finding, Severity
from mha_lint.model.report import Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.source import Span
from mha_lint.model.target import TargetSpec
from mha_lint.runner import cache as caching
from mha_lint.runner.cache import FOLDER, Cache, empty_caches, no_cache
from mha_lint.runner.jobs import FileRead, Limits, Outcome, Plan
from mha_lint.runner.reads import digest

SPEC = TargetSpec("a.py::MHA", path="a.py", qualname="MHA", stated=False, line=3)
FOUND = Finding("MHA204", "wrong-softmax-axis", Severity.ERROR, "Queries.", Span("a.py", 9, 5))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(Settings(cwd=str(tmp_path)))


@pytest.fixture
def helper(tmp_path: Path) -> Path:
    file = tmp_path / "helper.py"
    file.write_text("DIM = -1\n")
    return file


@pytest.fixture
def outcome(helper: Path) -> Outcome:
    report = TargetReport(
        "a.py::MHA", "a.py", "MHA", 3, Status.CHECKED, seconds=0.25, findings=(FOUND,)
    )
    return Outcome(report, reads=(FileRead(str(helper), digest(str(helper))),), lasting=True)


def kept(plan: Plan, outcome: Outcome, content: str = "c0ffee") -> Cache:
    """Return the cache of a later run, in which `outcome` was kept by an earlier one."""
    Cache.of(plan).put(SPEC, content, outcome)
    return Cache.of(plan)


def entry(plan: Plan) -> Path:
    (found,) = Path(plan.settings.cwd, FOLDER).rglob("*.json")
    return found


def test_what_was_kept_comes_back_whole(plan: Plan, outcome: Outcome) -> None:
    assert kept(plan, outcome).get(SPEC, "c0ffee") == outcome


def test_nothing_was_kept_before_the_first_run(plan: Plan) -> None:
    cache = Cache.of(plan)
    assert cache.empty
    assert cache.get(SPEC, "c0ffee") is None


def test_another_content_or_target_is_another_entry(plan: Plan, outcome: Outcome) -> None:
    cache = kept(plan, outcome)
    assert cache.get(SPEC, "decade") is None
    assert cache.get(dataclasses.replace(SPEC, build="MHA(64, 8)"), "c0ffee") is None
    assert cache.get(dataclasses.replace(SPEC, expect=("causal",)), "c0ffee") is None


@pytest.mark.parametrize(
    "change", [{"ignore": ("MHA2",)}, {"dtype": "float32"}, {"crosscheck": False}, {"timeout": 5.0}]
)
def test_other_settings_are_another_entry(
    plan: Plan, outcome: Outcome, change: dict[str, object]
) -> None:
    kept(plan, outcome)
    other = dataclasses.replace(plan.settings, **change)  # type: ignore[arg-type]
    assert Cache.of(Plan(other)).get(SPEC, "c0ffee") is None
    assert Cache.of(Plan(plan.settings, Limits(memory=1))).get(SPEC, "c0ffee") is None


def test_how_much_is_shown_makes_no_difference(plan: Plan, outcome: Outcome) -> None:
    kept(plan, outcome)
    other = dataclasses.replace(plan.settings, verbose=True, strict=True)
    assert Cache.of(Plan(other)).get(SPEC, "c0ffee") == outcome


def test_a_changed_import_makes_the_entry_worthless(
    plan: Plan, outcome: Outcome, helper: Path
) -> None:
    cache = kept(plan, outcome)
    helper.write_text("DIM = -2\n")
    assert cache.get(SPEC, "c0ffee") is None
    helper.unlink()
    assert cache.get(SPEC, "c0ffee") is None


def test_another_version_or_package_makes_all_entries_worthless(
    plan: Plan, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(plan, outcome)
    monkeypatch.setattr(caching, "_surroundings", lambda: "another torch")
    assert Cache.of(plan).get(SPEC, "c0ffee") is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"key": 1}', b"\xff\xfe", b"[" * 100_000, b"null"]
)
def test_a_corrupt_entry_is_as_good_as_none(plan: Plan, outcome: Outcome, content: bytes) -> None:
    cache = kept(plan, outcome)
    entry(plan).write_bytes(content)
    assert cache.get(SPEC, "c0ffee") is None
    cache.put(SPEC, "c0ffee", outcome)
    assert cache.get(SPEC, "c0ffee") == outcome


def test_a_foreign_entry_in_the_right_place_is_as_good_as_none(
    plan: Plan, outcome: Outcome
) -> None:
    cache = kept(plan, outcome)
    document = json.loads(entry(plan).read_bytes())
    document["key"] = "f" * 64
    entry(plan).write_text(json.dumps(document))
    assert cache.get(SPEC, "c0ffee") is None


def test_what_does_not_last_is_not_kept(plan: Plan, outcome: Outcome) -> None:
    kept(plan, dataclasses.replace(outcome, lasting=False))
    assert not Path(plan.settings.cwd, FOLDER).exists()


def test_a_crash_of_ours_is_kept_with_its_report(plan: Plan, outcome: Outcome) -> None:
    crash = Crash("rule MHA201", "a.py::MHA", "KeyError: 'x'")
    known = dataclasses.replace(outcome, crashes=(crash,))
    assert kept(plan, known).get(SPEC, "c0ffee") == known


def test_a_folder_that_cannot_be_written_is_no_error(
    plan: Plan, outcome: Outcome, tmp_path: Path
) -> None:
    (tmp_path / FOLDER).write_text("a file in its place")
    assert kept(plan, outcome).get(SPEC, "c0ffee") is None


def test_no_cache_keeps_nothing(outcome: Outcome) -> None:
    cache = no_cache()
    cache.put(SPEC, "c0ffee", outcome)
    assert cache.empty
    assert cache.get(SPEC, "c0ffee") is None


def test_only_caches_are_removed(plan: Plan, outcome: Outcome, tmp_path: Path) -> None:
    kept(plan, outcome)
    below = tmp_path / "sub" / "project"
    below.mkdir(parents=True)
    kept(Plan(Settings(cwd=str(below))), outcome)
    alike = tmp_path / "other" / FOLDER
    alike.mkdir(parents=True)
    (alike / "mine.txt").write_text("somebody's")
    assert sorted(empty_caches(tmp_path)) == [tmp_path / FOLDER, below / FOLDER]
    assert (alike / "mine.txt").exists()
    assert not (tmp_path / FOLDER).exists()
    assert empty_caches(tmp_path) == []


def test_git_leaves_the_cache_alone(plan: Plan, outcome: Outcome, tmp_path: Path) -> None:
    kept(plan, outcome)
    assert (tmp_path / FOLDER / ".gitignore").read_text() == "*\n"
    assert (tmp_path / FOLDER / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d17")
