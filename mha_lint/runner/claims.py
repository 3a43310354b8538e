"""Whether what a worker says of its target could be said of it at all: it may be the target that speaks."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from mha_lint.model.report import RunReport, TargetReport
from mha_lint.report.json_format import SCHEMA, to_json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def refusal(report: TargetReport) -> str:
    """Return why `report` cannot stand in the JSON report, by its schema; "" where it can."""
    if not math.isfinite(report.seconds):
        return "seconds: no number"
    document: Any = to_json(RunReport("0", None, (report,)))
    schema = _schema()
    return next(_faults(document["targets"][0], schema["$defs"]["target"], schema, "target"), "")


@functools.cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def _faults(value: Any, rule: dict[str, Any], schema: dict[str, Any], where: str) -> Iterator[str]:
    """Yield what of `value` the part `rule` of `schema` forbids; only of what schemas of ours say."""
    if "$ref" in rule:
        rule = schema["$defs"][rule["$ref"].rpartition("/")[2]]
    kinds = rule.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{where}: {type(value).__name__} not expected"
    if "enum" in rule and value not in rule["enum"]:
        yield f"{where}: unknown value"
    if "minimum" in rule and _is(value, "number") and value < rule["minimum"]:
        yield f"{where}: less than {rule['minimum']}"
    if "pattern" in rule and isinstance(value, str) and not re.search(rule["pattern"], value):
        yield f"{where}: unknown form"
    if isinstance(value, list):
        for one in value:
            yield from _faults(one, rule.get("items", {}), schema, where)
    if isinstance(value, dict):
        for name, own in rule.get("properties", {}).items():
            if name in value:
                yield from _faults(value[name], own, schema, f"{where}.{name}")


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
