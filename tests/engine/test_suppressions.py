"""Comments that suppress nothing, over whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.report import RunReport
from mha_lint.model.settings import PerFileIgnore
from tests.engine.conftest import line_of
from tests.facts.conftest import HEADER, PLAIN, edited

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.conftest import Check

SCALE = "scores = scores / math.sqrt(self.d_k)"
WRONG = "scores = scores / math.sqrt(C)"
TEXT = edited(PLAIN, (SCALE, f"{SCALE}  # mha-lint: ignore[MHA202] was another"))
OTHER = PLAIN.replace("class MHA", "class Other")


def unused(report: RunReport) -> list[tuple[str, int, str]]:
    assert report.crashes == ()
    return [
        (f.span.path, f.span.line, f.message)
        for t in report.targets
        for f in t.findings
        if f.code == "MHA002" and not f.suppressed
    ]


def test_a_comment_on_a_line(checked: Check) -> None:
    report = checked("a.py", files={"a.py": TEXT})
    line = line_of(TEXT, "ignore[MHA202]")
    text = "the comment suppresses MHA202, of which nothing is found on this line"
    assert unused(report) == [("a.py", line, text)]
    (finding,) = [f for t in report.targets for f in t.findings]
    source = (HEADER + TEXT).splitlines()[line - 1]
    marked = source[finding.span.column - 1 : finding.span.end_column - 1]
    assert marked == "# mha-lint: ignore[MHA202] was another"
    assert finding.confirmed_by is not None


def test_a_comment_that_hides_something(checked: Check) -> None:
    text = TEXT.replace(SCALE, WRONG)
    report = checked("a.py", files={"a.py": text})
    assert unused(report) == []
    assert [(f.code, f.suppressed) for t in report.targets for f in t.findings] == [
        ("MHA202", True)
    ]
    both = text.replace("ignore[MHA202]", "ignore[MHA202, MHA204]")
    ((_, _, message),) = unused(checked("b.py", files={"b.py": both}))
    assert message == "the comment suppresses MHA204, of which nothing is found on this line"


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        (("class MHA(nn.Module):", "class MHA(nn.Module):  # mha-lint: ignore[MHA1]"), "in the class"),
        (("class MHA(nn.Module):", "# mha-lint: ignore-file[MHA401]\nclass MHA(nn.Module):"),
         "in the file"),
    ],
)  # fmt: skip
def test_what_a_comment_covers(edit: tuple[str, str], place: str, checked: Check) -> None:
    ((_, _, message),) = unused(checked("a.py", files={"a.py": edited(PLAIN, edit)}))
    assert message.endswith(place)


@pytest.mark.parametrize(
    "settings",
    [
        {"select": ("MHA2",)},
        {"select": ("MHA002",)},
        {"ignore": ("MHA202",)},
        {"ignore": ("MHA002",)},
    ],
)
def test_only_rules_that_ran_can_tell(settings: dict[str, Any], checked: Check) -> None:
    assert unused(checked("a.py", files={"a.py": TEXT}, **settings)) == []


def test_rules_that_ran_suffice(checked: Check) -> None:
    report = checked("a.py", files={"a.py": TEXT}, select=("MHA002", "MHA202"))
    assert len(unused(report)) == 1


def test_a_file_whose_ignores_cover_the_rule(checked: Check, folder: Path) -> None:
    ignore = (PerFileIgnore("a.py", ("MHA202",), str(folder)),)
    assert unused(checked("a.py", files={"a.py": TEXT}, per_file_ignores=ignore)) == []
    ignore = (PerFileIgnore("a.py", ("MHA002",), str(folder)),)
    assert unused(checked("a.py", files={"a.py": TEXT}, per_file_ignores=ignore)) == []


def test_the_cross_check_must_have_run(checked: Check) -> None:
    text = TEXT.replace("ignore[MHA202]", "ignore[MHA902]")
    assert unused(checked("a.py", files={"a.py": text}, crosscheck=False)) == []
    assert len(unused(checked("a.py", files={"a.py": text}))) == 1


def test_all_of_the_file_must_be_judged(checked: Check) -> None:
    files = {"a.py": TEXT + "\n\n" + OTHER}
    assert unused(checked("a.py::MHA", files=files)) == []
    assert len(unused(checked("a.py", files=files))) == 1
    broken = TEXT + "\n\n" + OTHER.replace("super().__init__()", "super().__init__(); 1 / 0")
    assert unused(checked("b.py", files={"b.py": broken})) == []


def test_the_finding_stands_with_the_class_that_it_is_in(checked: Check) -> None:
    report = checked("a.py", files={"a.py": OTHER + "\n\n" + TEXT})
    held = {t.class_name: [f.code for f in t.findings] for t in report.targets}
    assert held == {"Other": [], "MHA": ["MHA002"]}


def test_it_can_be_suppressed_itself(checked: Check) -> None:
    text = TEXT.replace("ignore[MHA202]", "ignore[MHA202, MHA002]")
    assert unused(checked("a.py", files={"a.py": text})) == []
    text = TEXT + "\n# mha-lint: ignore-file[MHA002]\n"
    assert unused(checked("b.py", files={"b.py": text})) == []


def test_codes_of_no_rule_are_a_note(checked: Check) -> None:
    report = checked("a.py", files={"a.py": TEXT.replace("MHA202", "MHA999")})
    assert unused(report) == []
    assert any("MHA999 is no rule's code" in note for note in report.notes)
