"""Runs over notebooks: lines counted in cells, comments in cells, what was left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.report import RunReport, Status
from mha_lint.report.json_format import to_json
from tests.facts.conftest import HEADER, PLAIN, edited
from tests.targets.conftest import notebook

if TYPE_CHECKING:
    from tests.engine.conftest import Check

SCALE = "scores = scores / math.sqrt(self.d_k)"
WRONG = edited(PLAIN, (SCALE, "scores = scores / math.sqrt(C)"))
BOTH: dict[str, Any] = {"build": "MHA(24, 4)", "call": "torch.randn(2, 5, 24)"}


def _write(folder: Path, *cells: str) -> None:
    (folder / "book.ipynb").write_text(json.dumps(notebook(*cells)), encoding="utf-8")


def _line(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


def _found(report: RunReport) -> list[tuple[str, int | None, int, bool]]:
    assert report.crashes == ()
    return [(f.code, f.cell, f.span.line, f.suppressed) for t in report.targets for f in t.findings]


def test_lines_are_counted_in_their_cell(checked: Check, folder: Path) -> None:
    _write(
        folder, "#md title", "%matplotlib inline\n" + HEADER, "#md more", "# attention\n" + WRONG
    )
    report = checked("book.ipynb::MHA", **BOTH)
    (target,) = report.targets
    line = _line(WRONG, "math.sqrt(C)") + 1
    assert _found(report) == [("MHA202", 4, line, False)]
    (finding,) = target.findings
    assert str(finding.span) == f"book.ipynb:cell 4:{line}:{finding.span.column}"
    assert (target.cell, target.line) == (4, _line(WRONG, "class MHA") + 1)
    assert [(s.cell, s.where) for s in target.sites] == [
        (4, f"cell 4, line {target.sites[0].line}")
    ]


def test_a_file_has_no_cells(checked: Check) -> None:
    report = checked("a.py", files={"a.py": WRONG}, **BOTH)
    assert [(f.code, f.cell) for f in report.findings()] == [("MHA202", None)]
    document: Any = to_json(report)
    assert "cell" not in document["targets"][0] and "cell" not in document["targets"][0]["sites"][0]


def test_a_finding_stays_the_same_when_cells_move(checked: Check, folder: Path) -> None:
    _write(folder, HEADER, WRONG)
    (before,) = checked("book.ipynb::MHA", **BOTH).findings()
    _write(folder, "#md new", HEADER, "x = 1\ny = 2", WRONG)
    (after,) = checked("book.ipynb::MHA", **BOTH).findings()
    assert (before.cell, after.cell) == (2, 4)
    assert (before.fingerprint, before.span.line) == (after.fingerprint, after.span.line)


def test_labels_may_lie_in_another_cell(checked: Check, folder: Path) -> None:
    helper = "def weigh(scores):\n    return torch.softmax(scores, dim=-2)\n"
    used = edited(PLAIN, ("scores.softmax(dim=-1)", "weigh(scores)"))
    assert used != PLAIN
    _write(folder, HEADER, helper, used)
    (finding,) = checked("book.ipynb::MHA", **BOTH).findings()
    assert (finding.code, finding.cell, finding.span.line) == ("MHA204", 2, 2)
    assert {label.span.cell for label in finding.labels} == {3}


@pytest.mark.parametrize("place", ["line", "class", "file"])
def test_comments_in_cells_suppress(checked: Check, folder: Path, place: str) -> None:
    comment = "  # mha-lint: ignore[MHA202] known"
    cells = [HEADER, WRONG]
    if place == "line":
        cells[1] = WRONG.replace("math.sqrt(C)", f"math.sqrt(C){comment}")
    elif place == "class":
        cells[1] = WRONG.replace("class MHA(nn.Module):", f"class MHA(nn.Module):{comment}")
    else:
        cells.insert(0, "%load_ext x\n" + comment.strip().replace("ignore[", "ignore-file["))
    _write(folder, *cells)
    assert [(c, s) for c, _, _, s in _found(checked("book.ipynb", **BOTH))] == [("MHA202", True)]


def test_a_comment_that_suppresses_nothing_is_told_by_its_cell(
    checked: Check, folder: Path
) -> None:
    _write(folder, HEADER, "!ls\n" + PLAIN.replace(SCALE, f"{SCALE}  # mha-lint: ignore[MHA202] x"))
    report = checked("book.ipynb", **BOTH)
    assert _found(report) == [("MHA002", 2, _line(PLAIN, SCALE) + 1, False)]


def test_a_comment_in_a_version_that_was_not_asked_for_is_left_alone(
    checked: Check, folder: Path
) -> None:
    comment = "  # mha-lint: ignore[MHA204] x"
    _write(folder, HEADER, WRONG.replace("math.sqrt(C)", f"math.sqrt(C){comment}"), PLAIN)
    report = checked("book.ipynb::MHA", **BOTH)
    assert _found(report) == []
    assert report.notes == (
        "book.ipynb: MHA of cell 2 is replaced later, and was not checked: name it "
        "book.ipynb::MHA@2",
    )


def test_a_comment_that_names_no_rule(checked: Check, folder: Path) -> None:
    _write(folder, HEADER, PLAIN + "# mha-lint: ignore[MHA999]")
    line = len(PLAIN.splitlines()) + 1
    assert checked("book.ipynb", **BOTH).notes == (
        f"book.ipynb:cell 2:{line}: MHA999 is no rule's code, nothing is suppressed by it",
    )


def test_versions_are_judged_each_on_its_own(checked: Check, folder: Path) -> None:
    _write(folder, HEADER, WRONG, PLAIN)
    report = checked("book.ipynb")
    assert [(t.target, t.status, len(t.findings)) for t in report.targets] == [
        ("book.ipynb::MHA@2", Status.CHECKED, 1),
        ("book.ipynb::MHA", Status.CHECKED, 0),
    ]
    assert report.notes == ()


def test_a_broken_cell_without_definitions_is_noted(checked: Check, folder: Path) -> None:
    _write(folder, HEADER, "x = 1\nprint(x))", PLAIN)
    report = checked("book.ipynb", **BOTH)
    assert [t.status for t in report.targets] == [Status.CHECKED]
    assert report.notes == (
        "book.ipynb: syntax error in cell 2, line 2: unmatched ')'; the other cells are read",
    )


def test_a_cell_that_writes_a_file_is_noted(checked: Check, folder: Path) -> None:
    _write(folder, HEADER, f"%%writefile -a lab/mha.py\n{PLAIN}", "%%writefile x.py\nx = 1", PLAIN)
    assert checked("book.ipynb", **BOTH).notes == (
        "book.ipynb: cell 2 writes lab/mha.py and is not read: check that file",
    )


def test_a_broken_cell_with_definitions_is_not_checked(checked: Check, folder: Path) -> None:
    _write(folder, HEADER, "class Other:\n    x = )", PLAIN)
    report = checked("book.ipynb")
    assert [(t.target, t.path, t.reason) for t in report.targets if t.status is Status.FAILED] == [
        ("book.ipynb::Other", "book.ipynb", "syntax error in cell 2, line 2: unmatched ')'")
    ]
    assert report.notes == ()


def test_reasons_and_tracebacks_name_the_cell(checked: Check, folder: Path) -> None:
    broken = PLAIN.replace(SCALE, "scores = scores.nonsense()")
    _write(folder, HEADER, broken)
    (target,) = checked("book.ipynb::MHA").targets
    line = _line(broken, "nonsense")
    assert (target.status, target.cell) == (Status.FAILED, 2)
    assert f'book.ipynb", cell 2, line {line}, in forward' in target.detail
    assert f"the call fails at cell 2, line {line}" in (target.reason or "")
