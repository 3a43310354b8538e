"""A line stays one line, whatever is put in it."""

from __future__ import annotations

from mha_lint.report.lines import line


def test_a_name_with_line_breaks_and_escape_codes_is_one_line() -> None:
    made = line(("a\nb\r\nc\x1b[31m", "bold"), " d\n")
    assert made.plain == "a�b�c�[31m d�"
