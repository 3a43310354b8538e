"""The ``json`` format, version 1; ``schema.json`` beside this file describes it.

Same input, same bytes, once ``seconds`` is removed: keys stand in a fixed order and numbers are as
the engine rounded them. What JSON cannot hold (infinities, NaN) is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from mha_lint.model.contract import ContractEntry
from mha_lint.model.finding import Crash, Finding, Undecided
from mha_lint.model.report import (
    Cost,
    CrossCheck,
    RunReport,
    SiteReport,
    Status,
    TargetReport,
)
from mha_lint.report.view import View

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"

SCHEMA = Path(__file__).with_name("schema.json")
FORMAT_VERSION = 1


def render(report: RunReport, view: View) -> str:
    """Return `report` as one JSON document; `view` does not matter."""
    return dumps(to_json(report))


def dumps(document: Json) -> str:
    """Return `document` as text."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def to_json(report: RunReport, *, costs: bool = False) -> Json:
    """Return `report` as JSON values, with the `costs` of each site if wanted."""
    judged = [t for t in report.targets if t.status in (Status.CHECKED, Status.UNDECIDED)]
    return {
        "version": FORMAT_VERSION,
        "tool": {"name": "mha-lint", "version": report.version, "torch": report.torch},
        "targets": [_target(t, costs) for t in report.targets],
        "crashes": [_crash(c) for c in report.crashes],
        "summary": {
            "targets": len(report.targets),
            "checked": len(judged),
            "sites": sum(len(t.sites) for t in judged),
            "findings": len(report.findings()),
            "seconds": _seconds(report.seconds),
        },
        **_part(report),
    }


def _part(report: RunReport) -> dict[str, Json]:
    """Return what tells that this is not the whole of a run; nothing where it is."""
    out: dict[str, Json] = {}
    if report.shard is not None:
        index, count = report.shard
        out["shard"] = {"index": index, "count": count}
    if report.interrupted:
        out["interrupted"] = True
    return out


def _target(target: TargetReport, costs: bool) -> Json:
    return {
        "target": target.target,
        "path": target.path,
        "class": target.class_name,
        "line": target.line,
        **_cell(target.cell),
        "status": target.status.value,
        "reason": target.reason,
        "hint": target.hint,
        "seconds": _seconds(target.seconds),
        "sites": [_site(s) | (_cost(s.cost) if costs else {}) for s in target.sites],
        "findings": [_finding(f) for f in target.findings],
        **_elsewhere(target.elsewhere),
        "undecided": [_undecided(u) for u in target.undecided],
        "contract": [_contract(c) for c in target.contract],
        "crosscheck": [_crosscheck(c) for c in target.crosscheck],
    }


def _elsewhere(findings: Sequence[Finding]) -> dict[str, Json]:
    """Return the places of what holds of a target too and is told with another; often none."""
    places = {(f.span.path, f.cell or 0, f.span.line, f.code) for f in findings if not f.suppressed}
    if not places:
        return {}
    listed: list[Json] = [
        {"code": code, "path": path, "line": line, **_cell(cell or None)}
        for path, cell, line, code in sorted(places)
    ]
    return {"elsewhere": listed}


def _site(site: SiteReport) -> dict[str, Json]:
    scale: Json = None
    if site.scale_value is not None:
        scale = {"value": _number(site.scale_value), "named": site.scale_named}
    return {
        "id": site.id,
        "module": site.module,
        "line": site.line,
        **_cell(site.cell),
        "kind": site.kind,
        "d_model": site.d_model,
        "num_heads": site.num_heads,
        "num_kv_heads": site.num_kv_heads,
        "head_dim": site.head_dim,
        "v_dim": site.v_dim,
        "scale": scale,
        "softmax_axis": site.softmax_axis,
        "output_projection": site.output_projection,
        "mask": site.mask,
        "repeated": site.repeated,
    }


def _cell(cell: int | None) -> dict[str, Json]:
    """Return the cell of a notebook, which nothing outside notebooks has."""
    return {} if cell is None else {"cell": cell}


def _cost(cost: Cost | None) -> dict[str, Json]:
    if cost is None:
        return {"cost": None}
    numbers: dict[str, Json] = {
        "parameters": cost.parameters,
        "projections": cost.projections,
        "scores": cost.scores,
        "context": cost.context,
        "output": cost.output,
        "total": cost.total,
        "single_head_total": cost.single_head_total,
    }
    return {"cost": numbers}


def _finding(finding: Finding) -> Json:
    span = finding.span
    return {
        "code": finding.code,
        "rule": finding.rule,
        "severity": finding.severity.value,
        "message": finding.message,
        "path": span.path,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line or span.line,
        "end_column": span.end_column or span.column,
        "cell": finding.cell,
        "site": finding.site,
        "branch": finding.branch,
        "fingerprint": finding.fingerprint,
        "evidence": list(finding.evidence),
        "confirmed_by": finding.confirmed_by,
        "suppressed": finding.suppressed,
        "fix": None,
        "help": finding.help,
    }


def _undecided(item: Undecided) -> Json:
    return {"code": item.code, "site": item.site, "why": item.why}


def _contract(entry: ContractEntry) -> Json:
    return {"key": entry.key, "value": entry.value, "source": entry.source}


def _crosscheck(check: CrossCheck) -> Json:
    return {
        "site": check.site,
        "verdict": check.verdict,
        "departs_at": check.departs_at,
        "device": check.device,
        "dtype": check.dtype,
        "max_abs_error": _number(check.max_abs_error),
        "tolerance": _number(check.tolerance),
        "explanation": check.explanation,
    }


def _crash(crash: Crash) -> Json:
    return {"where": crash.where, "target": crash.target, "error": crash.error}


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _seconds(value: float) -> float:
    return round(value, 3)
