"""What a finding in a notebook looks like."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mha_lint.model.finding import Label
from mha_lint.model.report import RunReport
from mha_lint.report import concise, inspect, json_format, text
from mha_lint.report.cells import cell_lines
from mha_lint.report.view import View
from tests.targets.conftest import notebook

CELLS = (
    "#md title",
    "%pip install x\nscale = 8",
    "a = 1\nweights = softmax(scores, dim=-2)\nb = 2",
)


@pytest.fixture
def in_book(sample: RunReport, tmp_path: Path) -> RunReport:
    (tmp_path / "book.ipynb").write_text(json.dumps(notebook(*CELLS)), encoding="utf-8")
    target = next(t for t in sample.targets if t.findings)
    finding = target.findings[0]
    span = replace(
        finding.span, path="book.ipynb", cell=3, line=2, column=11, end_line=2, end_column=34
    )
    other = replace(span, cell=2, column=9, end_column=10)
    finding = replace(finding, span=span, labels=(Label(other, "the scale"),))
    site = replace(target.sites[0], cell=3, line=2)
    target = replace(
        target, path="book.ipynb", cell=3, line=1, sites=(site,), findings=(finding,), elsewhere=()
    )
    return replace(sample, targets=(target,), crashes=(), notes=())


def test_frames_show_the_lines_of_the_cell(in_book: RunReport, tmp_path: Path) -> None:
    shown = text.render(in_book, View(str(tmp_path))).splitlines()
    assert any(line.endswith("book.ipynb:cell 3:2:11") for line in shown)
    start = shown.index("    1 │ a = 1")
    assert shown[start + 1 : start + 3] == [
        "    2 │ weights = softmax(scores, dim=-2)",
        "      │           ^^^^^^^^^^^^^^^^^^^^^^^ normalises over queries: axis 2 of (B, h, T_q, T_k)",
    ]
    other = shown.index("     --> book.ipynb:cell 2:2")
    assert shown[other + 1 :][:3] == [
        "    1 │ %pip install x",
        "    2 │ scale = 8",
        "      │         - the scale",
    ]


def test_concise_names_the_cell(in_book: RunReport, tmp_path: Path) -> None:
    first = concise.render(in_book, View(str(tmp_path))).splitlines()[0]
    assert first.startswith("book.ipynb:cell 3:2:11: MHA204 ")


def test_inspect_names_the_cell(in_book: RunReport, tmp_path: Path) -> None:
    assert " cell 3:2 " in inspect.render(in_book, View(str(tmp_path)))


def test_json_holds_the_cell(in_book: RunReport, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = json.loads(json_format.render(in_book, View(str(tmp_path))))
    jsonschema.validate(document, json.loads(json_format.SCHEMA.read_text(encoding="utf-8")))
    (target,) = document["targets"]
    assert (target["cell"], target["line"], target["sites"][0]["cell"]) == (3, 1, 3)
    assert [target["findings"][0][key] for key in ("path", "cell", "line", "end_line")] == [
        "book.ipynb", 3, 2, 2,
    ]  # fmt: skip


def test_cells_are_read_in_every_layout(tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    made = notebook("a = 1\r\nb = 2")
    made["cells"].append(dict(made["cells"][0], source=["c = 3\n", "d = 4"]))
    path.write_text(json.dumps(made))
    assert cell_lines(str(path), 1) == ["a = 1", "b = 2"]
    assert cell_lines(str(path), 2) == ["c = 3", "d = 4"]
    assert cell_lines(str(path), 3) == []
    path.write_text(json.dumps({"worksheets": [{"cells": [{"input": ["x\n", "y"]}]}]}))
    assert cell_lines(str(path), 1) == ["x", "y"]
    path.write_text("{")
    assert cell_lines(str(path), 1) == []
    assert cell_lines(str(tmp_path / "none.ipynb"), 1) == []
