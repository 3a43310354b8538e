"""The diagnosis as JSON, version 1; ``schema.json`` beside this file describes it.

``sources``: the files read (``path``, ``kind``, ``detail``). ``attention``: one object for each group
of layers that are alike: ``where``, ``count``, ``layout``, ``status`` ("solved", "open",
"contradictory", "not read"), the sizes (null where unknown), ``candidates`` (ways to cut the widths,
``usual`` marks common head widths), ``tensors``, and the ``config`` section that was compared.
``contradictions``: ``message``, ``sources``, ``where``. ``notes``: sentences.
"""

from __future__ import annotations

import json
from pathlib import Path

from mha_lint.dims.data import NAMES, DimsReport, Group

SCHEMA = Path(__file__).with_name("schema.json")


def render(report: DimsReport) -> str:
    """Return `report` as one JSON document."""
    return json.dumps(to_json(report), indent=1) + "\n"


def to_json(report: DimsReport) -> dict[str, object]:
    """Return `report` as JSON values."""
    return {
        "version": 1,
        "sources": [{"path": s.path, "kind": s.kind, "detail": s.detail} for s in report.sources],
        "attention": [_group(g) for g in report.groups],
        "contradictions": [
            {"message": c.message, "sources": list(c.sources), "where": c.where}
            for c in report.contradictions
        ],
        "notes": report.notes,
        "exit_code": report.exit_code,
    }


def _group(group: Group) -> dict[str, object]:
    return {
        "where": group.where,
        "count": group.count,
        "layout": group.layout,
        "status": group.status,
        **{name: group.sizes.get(short) for short, name in NAMES.items()},
        "kv_width": group.kv_width,
        "candidates": [
            {**{NAMES[n]: v for n, v in c.sizes.items()}, "usual": c.usual}
            for c in group.candidates
        ],
        "tensors": list(group.tensors),
        "config": group.config,
    }
