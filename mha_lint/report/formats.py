"""The formats of a run's report, by name; each is imported when a report is made in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mha_lint.model.report import RunReport
    from mha_lint.report.view import View

Renderer: TypeAlias = "Callable[[RunReport, View], str]"


def _text(report: RunReport, view: View) -> str:
    from mha_lint.report import text

    return text.render(report, view)


def _concise(report: RunReport, view: View) -> str:
    from mha_lint.report import concise

    return concise.render(report, view)


def _json(report: RunReport, view: View) -> str:
    from mha_lint.report import json_format

    return json_format.render(report, view)


FORMATS: dict[str, Renderer] = {"text": _text, "concise": _concise, "json": _json}
