"""Reports that no target can have: their sender lies, or is broken."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from mha_lint.model.finding import Finding, Severity
from mha_lint.model.report import CrossCheck, SiteReport, Status, TargetReport
from mha_lint.model.source import Span
from mha_lint.runner.claims import refusal

SITE = SiteReport("A.0", "", 4, "self", d_model=8)
FINDING = Finding("MHA201", "missing-scale", Severity.WARNING, "No scale.", Span("a.py", 3, 5))
REPORT = TargetReport(
    "a.py::A", "a.py", "A", 1, Status.CHECKED, sites=(SITE,), findings=(FINDING,),
    crosscheck=(CrossCheck("A.0", "match", max_abs_error=math.nan, tolerance=math.inf),),
)  # fmt: skip


def test_a_plain_report_is_taken() -> None:
    assert refusal(REPORT) == ""


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"line": 0}, "target.line: less than 1"),
        ({"seconds": math.nan}, "seconds: no number"),
        ({"seconds": -0.5}, "target.seconds: less than 0"),
        ({"cell": 0}, "target.cell: less than 1"),
        (
            {"sites": (SITE, dataclasses.replace(SITE, repeated=0))},
            "target.sites.repeated: less than 1",
        ),
        ({"sites": (dataclasses.replace(SITE, kind="new"),)}, "target.sites.kind: unknown value"),
        (
            {"findings": (dataclasses.replace(FINDING, code="all is well"),)},
            "target.findings.code: unknown form",
        ),
        (
            {"findings": (dataclasses.replace(FINDING, span=Span("a.py", -1, 1)),)},
            "target.findings.line: less than 1",
        ),
        (
            {"crosscheck": (CrossCheck("A.0", "perfect"),)},
            "target.crosscheck.verdict: unknown value",
        ),
    ],
)
def test_what_the_schema_forbids_is_refused(values: dict[str, Any], why: str) -> None:
    assert refusal(dataclasses.replace(REPORT, **values)) == why
