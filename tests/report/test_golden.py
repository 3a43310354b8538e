"""Every format of the one sample report, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mha_lint.model.report import RunReport
from mha_lint.report import concise, inspect, json_format, text
from mha_lint.report.formats import Renderer
from mha_lint.report.view import View

Golden = Callable[[str, str], None]

CASES: list[tuple[str, Renderer, dict[str, object]]] = [
    ("text.txt", text.render, {}),
    ("text-verbose.txt", text.render, {"verbose": True}),
    ("text-quiet.txt", text.render, {"quiet": True}),
    ("text-narrow.txt", text.render, {"width": 64}),
    ("text-ascii.txt", text.render, {"unicode": False}),
    ("text-color.txt", text.render, {"color": True}),
    ("concise.txt", concise.render, {}),
    ("report.json", json_format.render, {}),
    ("inspect.txt", inspect.render, {}),
    ("inspect.json", inspect.render_json, {}),
]


@pytest.mark.parametrize(("name", "render", "options"), CASES, ids=[c[0] for c in CASES])
def test_format(
    name: str,
    render: Renderer,
    options: dict[str, object],
    sample: RunReport,
    view: View,
    golden: Golden,
) -> None:
    golden(name, render(sample, replace(view, **options)))  # type: ignore[arg-type]


def test_plain_text_fits_and_has_no_escapes(sample: RunReport, view: View) -> None:
    rendered = text.render(sample, view)
    assert "\x1b" not in rendered
    assert max(len(row) for row in rendered.split("\n")) <= view.width
    assert not any(row.endswith(" ") for row in rendered.split("\n"))


def test_ascii_view_is_ascii(sample: RunReport, view: View) -> None:
    assert text.render(sample, replace(view, unicode=False)).isascii()


def test_colors_change_nothing_but_colors(sample: RunReport, view: View) -> None:
    import re

    colored = text.render(sample, replace(view, color=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text.render(sample, view)
