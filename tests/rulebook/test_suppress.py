"""Suppression comments: what they name and which lines they cover."""

from __future__ import annotations

import time

import pytest

from mha_lint.model.source import Span
from mha_lint.rulebook.suppress import suppressions, useless_comments

SOURCE = """\
class A:  # mha-lint: ignore[MHA2] the whole class
    def forward(self):
        x = 1


class B:
    y = 1  # mha-lint: ignore[MHA101, mha204] reason
    z = "# mha-lint: ignore[MHA3]"
    w = (1 +
         2)  # mha-lint: ignore[MHA401]
    v = 1  # a reason first  # MHA-LINT: ignore[MHA5]
    u = 1  # mha-lint: ignore
    t = 1  # mha-lint: ignore[]
"""


def covers(code: str, line: int, end_line: int = 0, source: str = SOURCE) -> bool:
    span = Span("a.py", line, 5, end_line, 9)
    return any(s.covers(code, span) for s in suppressions(source))


@pytest.mark.parametrize(
    ("code", "line", "end_line", "covered"),
    [
        ("MHA201", 1, 0, True),
        ("MHA202", 3, 3, True),
        ("MHA101", 3, 3, False),
        ("MHA201", 6, 6, False),
        ("MHA101", 7, 7, True),
        ("MHA204", 7, 7, True),
        ("MHA205", 7, 7, False),
        ("MHA101", 8, 8, False),
        ("MHA301", 8, 8, False),  # in a string
        ("MHA401", 9, 10, True),  # on the last line of the expression
        ("MHA401", 9, 9, False),
        ("MHA501", 11, 11, True),
        ("MHA101", 12, 12, False),  # names nothing
        ("MHA101", 13, 13, False),
    ],
)
def test_lines(code: str, line: int, end_line: int, covered: bool) -> None:
    assert covers(code, line, end_line) is covered


def test_a_file_comment_covers_the_file() -> None:
    source = SOURCE + "# mha-lint: ignore-file[MHA6] all of it\n"
    assert covers("MHA601", 1, source=source)
    assert covers("MHA601", 13, source=source)
    assert not covers("MHA701", 1, source=source)


def test_a_file_that_does_not_parse_has_none() -> None:
    assert suppressions("class (:  # mha-lint: ignore[MHA1]\n") == ()


def test_comments_that_name_no_rule_are_told() -> None:
    source = SOURCE + (
        "r = 1  # mha-lint: ignore[MHA204, wrong-softmax-axis]\n"
        "q = 1  # mha-lint ignore[MHA204]\n"
        "p = 1  # see mha_lint, or the mha linter\n"
    )
    codes = ["MHA101", "MHA201", "MHA204", "MHA501", "MHA401"]
    nothing = "suppresses nothing: write # mha-lint: ignore[MHA201]"
    assert useless_comments(source, codes) == [
        (12, nothing),
        (13, nothing),
        (14, "wrong-softmax-axis is no rule's code, nothing is suppressed by it"),
        (15, nothing),
    ]
    assert useless_comments("class (:  # mha-lint: ignore\n", codes) == []


def test_an_exported_notebook_has_comments() -> None:
    source = "# %%\n%matplotlib inline\nx = 1  # mha-lint: ignore[MHA201]\n!ls\n"
    assert [(one.line, one.codes) for one in suppressions(source)] == [(3, ("MHA201",))]
    unknown = source.replace("MHA201", "MHA999")
    assert [line for line, _ in useless_comments(unknown, ["MHA201"])] == [3]


@pytest.mark.parametrize("rest", ["(" * 5000, "x = " + "-" * 20000 + "1", "x = 1\0", "'''"])
def test_what_python_cannot_parse_suppresses_nothing(rest: str) -> None:
    source = f"x = 1  # mha-lint: ignore[MHA201]\n{rest}\n"
    assert suppressions(source) == ()
    assert useless_comments(source, ["MHA201"]) == []


@pytest.mark.parametrize("end", ["\r(\r", "$\n", "\r\r\n"])
def test_spaces_before_what_cannot_be_read_take_no_time(end: str) -> None:
    source = "x = 1  # mha-lint: ignore[MHA201]\n" + "%" * 20000 + " " * 20000 + end
    start = time.process_time()
    assert suppressions(source) == ()
    assert useless_comments(source, ["MHA201"]) == []
    assert time.process_time() - start < 5  # a minute, in Python before 3.12


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_as_python_ends_them(end: str) -> None:
    source = f"x = 1{' ' * 20000}{end}y = 2  # mha-lint: ignore[MHA201]{end}"
    start = time.process_time()
    assert [(one.line, one.codes) for one in suppressions(source)] == [(2, ("MHA201",))]
    assert useless_comments(source, []) == [
        (2, "MHA201 is no rule's code, nothing is suppressed by it")
    ]
    assert time.process_time() - start < 5
