"""Parts of a run: whole files, in order, and joined again what the whole would have said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mha_lint.model.finding import Crash, Finding, Severity
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import UsageError
from mha_lint.model.source import Span
from mha_lint.model.target import TargetSpec
from mha_lint.runner.shards import merged, part_of


def spec(text: str) -> TargetSpec:
    path, _, name = text.partition("::")
    return TargetSpec(text, path, qualname=name)


TEN = [spec(f"{file}.py::{name}") for file in "abcde" for name in "XY"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 20])
def test_the_parts_in_order_are_the_whole(count: int) -> None:
    parts = [part_of(TEN, index, count) for index in range(1, count + 1)]
    assert [one for part in parts for one in part] == TEN
    held = [{one.path for one in part if isinstance(one, TargetSpec)} for part in parts]
    assert sum(len(paths) for paths in held) == 5, "a file stays together"
    assert max(len(part) for part in parts) <= max(2, -(-10 // count) + 1)


def test_the_targets_of_one_file_stay_together_wherever_they_stand() -> None:
    named = [spec(t) for t in ("a.py::X", "b.py::Y", "./a.py::Z", "c.py::V", "d.py::W")]
    assert part_of(named, 1, 2) == named[:3]
    assert part_of(named, 2, 2) == named[3:]
    gone = NotChecked("no such file", target="c.py::Gone")
    parts = [part_of([*named[3:], gone], index, 3) for index in (1, 2, 3)]
    assert sorted(map(len, parts)) == [0, 0, 3]


def test_nothing_has_parts_without_anything() -> None:
    assert part_of([], 1, 3) == []


LINE = Span("a.py", 12, 5, 12, 30)


def finding(code: str = "MHA204", span: Span = LINE, *, suppressed: bool = False) -> Finding:
    return Finding(code, "a-rule", Severity.ERROR, "message", span, suppressed=suppressed)


def target(name: str, *findings: Finding, line: int = 1) -> TargetReport:
    path = name.partition("::")[0]
    kind = name.partition("::")[2]
    return TargetReport(name, path, kind, line, Status.CHECKED, findings=findings)


def part(*targets: TargetReport, shard: tuple[int, int] | None = None) -> RunReport:
    return RunReport("0.1.0", "2.13.0", targets, seconds=1.5, shard=shard)


def found(report: RunReport) -> dict[str, list[str]]:
    return {t.target: [f.code for f in t.findings] for t in report.targets}


def test_shards_are_put_in_order() -> None:
    crash = Crash("rule MHA105", "b.py::B", "KeyError: 1")
    two = replace(part(target("b.py::B"), shard=(2, 2)), crashes=(crash,))
    report = merged([("2.json", two), ("1.json", part(target("a.py::A"), shard=(1, 2)))])
    assert list(found(report)) == ["a.py::A", "b.py::B"]
    assert (report.crashes, report.seconds, report.shard) == ((crash,), 3.0, None)
    assert report.exit_code(Severity.WARNING) == 2


def test_whole_runs_stay_in_the_order_given() -> None:
    runs = [("2.json", part(target("b.py::B"))), ("1.json", part(target("a.py::A")))]
    assert list(found(merged(runs))) == ["b.py::B", "a.py::A"]


def test_a_finding_of_two_shards_stays_with_the_nearest_class() -> None:
    user, near = target("user.py::Block", finding()), target("a.py::Inner", finding(), line=10)
    above = target("a.py::Above", line=2)
    report = merged([("1", part(user, shard=(1, 2))), ("2", part(above, near, shard=(2, 2)))])
    assert found(report) == {"user.py::Block": [], "a.py::Above": [], "a.py::Inner": ["MHA204"]}
    assert [f.code for f in report.targets[0].elsewhere] == ["MHA204"]


def test_what_a_shard_says_is_told_elsewhere_is_kept() -> None:
    user = replace(target("a.py::Block"), elsewhere=(finding(),))
    report = merged([("1", part(user, target("a.py::A", finding()), shard=(1, 1)))])
    assert report.targets[0].elsewhere == (finding(),)


def comment(where: str, codes: str, line: int, left: str = "") -> Finding:
    """What rule MHA002 says, as it is in a JSON report."""
    return Finding(
        "MHA002",
        "unused-suppression",
        Severity.WARNING,
        f"the comment suppresses {codes}, of which nothing is found "
        f"{'on' if where == 'this line' else 'in'} {where}",
        Span("a.py", line, 40, line, 70),
        help=f"keep ignore[{left}] only" if left else "delete the comment",
        confirmed_by=f"{codes} ran on all of the file, and found nothing there",
    )


@pytest.mark.parametrize(
    ("said", "hidden", "kept"),
    [
        (comment("this line", "MHA204", 12), LINE, False),
        (comment("this line", "MHA2", 12), LINE, False),
        (comment("this line", "MHA204", 14), Span("a.py", 12, 5, 14, 3), False),
        (comment("this line", "MHA204", 13), LINE, True),
        (comment("this line", "MHA202", 12), LINE, True),
        (comment("this line", "MHA204", 12), Span("other.py", 12), True),
        (comment("the file", "MHA204", 3), LINE, False),
        (comment("the class", "MHA204", 10), LINE, False),
        (comment("the class", "MHA204", 10), Span("a.py", 25), True),
        (comment("the class", "MHA204", 20), LINE, True),
    ],
)
def test_a_comment_that_hides_a_finding_of_another_shard_is_of_use(
    said: Finding, hidden: Span, kept: bool
) -> None:
    here = part(target("a.py::A", said, line=10), target("a.py::B", line=20), shard=(2, 2))
    there = part(target("user.py::U", finding(span=hidden, suppressed=True)), shard=(1, 2))
    report = merged([("1", there), ("2", here)])
    assert found(report)["a.py::A"] == (["MHA002"] if kept else [])


def test_a_comment_with_a_code_of_use_is_told_of_the_others() -> None:
    said = comment("this line", "MHA201, MHA204, MHA3", 12, left="MHA202")
    here = part(target("a.py::A", said), shard=(2, 2))
    there = part(target("user.py::U", finding(suppressed=True)), shard=(1, 2))
    report = merged([("1", there), ("2", here)])
    (told,) = report.targets[1].findings
    assert told.message.startswith("the comment suppresses MHA201, MHA3, of which nothing")
    assert told.help == "keep ignore[MHA202, MHA204] only"
    assert (told.confirmed_by or "").startswith("MHA201, MHA3 ran on all")


def test_what_was_interrupted_is_told() -> None:
    report = merged([("1", replace(part(shard=(1, 1)), interrupted=True))])
    assert report.interrupted
    assert report.notes == ("a part of the run was interrupted", "no attention was found")


A, B, C = (part(target(f"{n}.py::A"), shard=(i, 3)) for i, n in enumerate("abc", start=1))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([A, C], "shard 2 of 3 missing"),
        ([A], "shards 2, 3 of 3 missing"),
        (
            [replace(A, shard=(1, 10**9))],
            "shards 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... of 1000000000",
        ),
        ([A, B, C, A], "4.json: is shard 1 of 3, and so is 1.json"),
        ([A, replace(B, shard=(2, 2))], "2.json: is one of 2 shards, and 1.json one of 3"),
        ([A, B, replace(C, shard=(4, 3))], "3.json: says that it is shard 4 of 3"),
        ([A, B, replace(C, shard=None)], "3.json: is of a whole run, and 1.json a shard"),
        ([A, B, replace(C, torch="2.9.0")], "3.json: was made with torch 2.9.0, and 1.json with"),
        (
            [A, replace(B, version="9"), C],
            "2.json: was made with mha-lint 9, and 1.json with 0.1.0",
        ),
    ],
)
def test_what_is_not_one_run_is_refused(parts: list[RunReport], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        merged([(f"{number}.json", one) for number, one in enumerate(parts, start=1)])
