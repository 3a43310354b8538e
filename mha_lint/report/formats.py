"""The formats of a run's report, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.report import RunReport
from mha_lint.report import concise, json_format, text
from mha_lint.report.view import View

Renderer: TypeAlias = Callable[[RunReport, View], str]

FORMATS: dict[str, Renderer] = {
    "text": text.render,
    "concise": concise.render,
    "json": json_format.render,
}
