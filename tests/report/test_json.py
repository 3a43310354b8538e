"""The JSON report against its published schema, and what makes it fit for machines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from mha_lint.model.report import CrossCheck, RunReport
from mha_lint.report import json_format
from mha_lint.report.view import View


def document(report: RunReport, view: View) -> Any:
    return json.loads(json_format.render(report, view))


@pytest.fixture
def schema() -> Any:
    loaded = json.loads(json_format.SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(loaded)
    return loaded


def test_the_sample_follows_the_schema(sample: RunReport, view: View, schema: Any) -> None:
    jsonschema.validate(document(sample, view), schema)


def test_the_schema_allows_nothing_else(sample: RunReport, view: View, schema: Any) -> None:
    changed = document(sample, view)
    changed["targets"][0]["findings"][0]["extra"] = 1
    with pytest.raises(jsonschema.ValidationError, match="extra"):
        jsonschema.validate(changed, schema)


def test_the_schema_demands_every_key(sample: RunReport, view: View, schema: Any) -> None:
    paths: list[list[str | int]] = [
        ["tool"],
        ["targets", 0],
        ["targets", 0, "sites", 0],
        ["targets", 0, "findings", 0],
        ["targets", 0, "crosscheck", 0],
        ["summary"],
    ]
    for path in paths:
        for key in list(_at(document(sample, view), path)):
            changed = document(sample, view)
            del _at(changed, path)[key]
            with pytest.raises(jsonschema.ValidationError, match=f"'{key}' is a required"):
                jsonschema.validate(changed, schema)


def test_an_empty_run(view: View, schema: Any) -> None:
    empty = document(RunReport("0.1.0", None), view)
    jsonschema.validate(empty, schema)
    assert empty["summary"] == {"targets": 0, "checked": 0, "sites": 0, "findings": 0, "seconds": 0}


def test_what_json_cannot_hold_is_null(sample: RunReport, view: View, schema: Any) -> None:
    check = CrossCheck("A.0", "mismatch", max_abs_error=math.inf, tolerance=math.nan)
    odd = replace(sample, targets=(replace(sample.targets[0], crosscheck=(check,)),))
    shown = document(odd, view)
    jsonschema.validate(shown, schema)
    crosscheck = shown["targets"][0]["crosscheck"][0]
    assert (crosscheck["max_abs_error"], crosscheck["tolerance"]) == (None, None)


def test_a_suppressed_finding_is_listed_but_not_counted(sample: RunReport, view: View) -> None:
    shown = document(sample, view)
    listed = [f for t in shown["targets"] for f in t["findings"]]
    assert [f["suppressed"] for f in listed] == [False, True]
    assert shown["summary"]["findings"] == 1


def test_nothing_of_the_place_where_it_is_read_is_in_it(sample: RunReport, view: View) -> None:
    elsewhere = replace(view, cwd="/", width=60, color=True, verbose=True)
    assert json_format.render(sample, elsewhere) == json_format.render(sample, view)


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value
