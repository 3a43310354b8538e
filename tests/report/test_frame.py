"""Code frames: what is underlined, in long, wide, tabbed, broken and missing source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mha_lint.model.finding import Finding, Label
from mha_lint.model.source import Span
from mha_lint.report.frame import code_frame
from mha_lint.report.view import View


def frame(
    finding: Finding, view: View, source: str, span: Span, *labels: Label, here: str = "here"
) -> list[str]:
    Path(view.cwd, span.path).write_text(source, encoding="utf-8")
    shown = replace(finding, span=span, labels=labels, here=here)
    return [text.plain.rstrip() for text in code_frame(shown, view, "red")]


def test_a_label_far_away_leaves_a_gap(finding: Finding, view: View) -> None:
    source = "".join(f"line_{n}\n" for n in range(1, 12))
    label = Label(Span("x.py", 9, 1, 9, 5), "there")
    assert frame(finding, view, source, Span("x.py", 1, 1, 1, 7), label) == [
        "    1 │ line_1",
        "      │ ^^^^^^ here",
        "    …",
        "    9 │ line_9",
        "      │ ---- there",
    ]


def test_a_label_above_and_on_the_same_line(finding: Finding, view: View) -> None:
    labels = (Label(Span("x.py", 1, 1, 1, 2), "first"), Label(Span("x.py", 3, 1, 3, 2), "same"))
    assert frame(finding, view, "a\nb\nc = d\n", Span("x.py", 3, 5, 3, 6), *labels) == [
        "    1 │ a",
        "      │ - first",
        "    2 │ b",
        "    3 │ c = d",
        "      │     ^ here",
        "      │ - same",
    ]


def test_an_expression_over_several_lines(finding: Finding, view: View) -> None:
    source = "y = f(\n    a,\n    b,\n)\n"
    assert frame(finding, view, source, Span("x.py", 1, 5, 4, 2)) == [
        "    1 │ y = f(",
        "      │     ^^",
        "    2 │     a,",
        "      │     ^^",
        "    3 │     b,",
        "      │     ^^",
        "    4 │ )",
        "      │ ^ here",
    ]


def test_a_stretch_of_many_lines_is_marked_where_it_begins(finding: Finding, view: View) -> None:
    source = "class A:\n" + "    x = 1\n" * 9
    assert frame(finding, view, source, Span("x.py", 1, 1, 10, 10)) == [
        "    1 │ class A:",
        "      │ ^^^^^^^^ here",
    ]


def test_a_span_without_an_end_reaches_to_the_end_of_its_line(finding: Finding, view: View) -> None:
    assert frame(finding, view, "  abc  \n", Span("x.py", 1, 3))[1] == "      │   ^^^ here"


def test_tabs_and_wide_characters_keep_the_marks_in_place(finding: Finding, view: View) -> None:
    rows = frame(finding, view, "\tx = '注意' + y\n", Span("x.py", 1, 13, 1, 14))
    assert rows == ["    1 │     x = '注意' + y", "      │                  ^ here"]


def test_a_long_line_is_cropped_around_the_mark(finding: Finding, view: View) -> None:
    source = "a" * 150 + "TARGET" + "b" * 150 + "\n"
    text, marks = frame(finding, view, source, Span("x.py", 1, 151, 1, 157))
    assert len(text) == view.width
    assert text.removeprefix("    1 │ ").startswith("…aaa")
    assert text.endswith("bbb…")
    start = marks.index("^")
    assert text[start : start + 6] == "TARGET"
    assert marks[start:] == "^^^^^^ here"


def test_a_label_in_another_file_has_its_own_block(finding: Finding, view: View) -> None:
    Path(view.cwd, "other.py").write_text("q = 1\n")
    label = Label(Span("other.py", 1, 1, 1, 2), "there")
    assert frame(finding, view, "k = 1\n", Span("x.py", 1, 1, 1, 2), label) == [
        "    1 │ k = 1",
        "      │ ^ here",
        "     --> other.py:1",
        "    1 │ q = 1",
        "      │ - there",
    ]


def test_control_characters_of_the_source_reach_no_terminal(finding: Finding, view: View) -> None:
    rows = frame(finding, view, "x = '\x1b[31m\x07'\n", Span("x.py", 1, 1, 1, 2))
    assert rows[0] == "    1 │ x = '\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}'"


@pytest.mark.parametrize("span", [Span("gone.py", 3, 1), Span("x.py", 99, 1)])
def test_without_source_the_place_is_told_in_words(
    finding: Finding, view: View, span: Span
) -> None:
    Path(view.cwd, "x.py").write_text("short\n")
    shown = replace(finding, span=span, labels=(), here="here")
    assert [t.plain for t in code_frame(shown, view, "red")] == [f"   {span}: here"]
