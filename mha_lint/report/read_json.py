"""A report in the ``json`` format, read back.

Nothing is taken on trust: what is not, to the last key, what `json_format` writes of the values that
were read is refused. A file that was cut or edited would else pass for a run that found less.
JSON holds less than a run knows: labels, what is printed under the source, why a finding matters and
what was said of how a target was built stay empty.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from mha_lint.model import wire
from mha_lint.model.report import RunReport
from mha_lint.model.settings import UsageError
from mha_lint.report.json_format import FORMAT_VERSION, to_json

_WANTED = "give what mha-lint check --format json wrote"


def read_report(document: bytes, name: str) -> RunReport:
    """Return the report that `document` holds; `name`: that of its file, for errors.

    Raises:
        UsageError: it is no report, not a whole one, or of a version that is not known.
    """
    plain = _parsed(document, name)
    try:
        report = wire.from_plain(RunReport, _run(plain))
    except (wire.WireError, KeyError, TypeError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{name}: is not a whole report ({what[:120]}); {_WANTED}") from None
    if to_json(report) != plain:
        raise UsageError(
            f"{name}: was cut or edited: its parts do not agree with each other; {_WANTED}"
        )
    return report


def _parsed(document: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object, if it is a report of a version that is known."""
    try:
        plain: Any = json.loads(document, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        what = "is empty" if not document.strip() else f"is no JSON ({error})"
        raise UsageError(f"{name}: {what}; {_WANTED}") from None
    tool = plain.get("tool") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(tool, dict) or tool.get("name") != "mha-lint":
        raise UsageError(f"{name}: is no report of mha-lint; {_WANTED}")
    version = plain.get("version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise UsageError(
            f"{name}: is of format version {str(version)[:20]}, and this mha-lint reads version "
            f"{FORMAT_VERSION}: merge with the mha-lint that made it"
        )
    targets = plain.get("targets")
    if isinstance(targets, list) and any(_inspected(target) for target in targets):
        raise UsageError(f"{name}: is of mha-lint inspect, which judges nothing; {_WANTED}")
    return plain


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _inspected(target: object) -> bool:
    sites = target.get("sites") if isinstance(target, dict) else None
    return isinstance(sites, list) and any(isinstance(s, dict) and "cost" in s for s in sites)


def _run(plain: dict[str, Any]) -> dict[str, Any]:
    shard = plain.get("shard")
    return {
        "version": plain["tool"]["version"],
        "torch": plain["tool"]["torch"],
        "targets": [_target(one) for one in plain["targets"]],
        "crashes": [
            {k: one[k] for k in ("where", "target", "error")} | {"traceback": ""}
            for one in plain["crashes"]
        ],
        "notes": [],
        "seconds": plain["summary"]["seconds"],
        "interrupted": plain.get("interrupted", False),
        "shard": None if shard is None else [shard["index"], shard["count"]],
    }


def _target(plain: dict[str, Any]) -> dict[str, Any]:
    same = ("target", "path", "line", "status", "reason", "hint", "seconds")
    lists = ("undecided", "contract", "crosscheck")
    return {
        **{"detail": "", "notes": []},
        **{key: plain[key] for key in (*same, *lists)},
        "class_name": plain["class"],
        "cell": plain.get("cell"),
        "sites": [_site(one) for one in plain["sites"]],
        "findings": [_finding(one) for one in plain["findings"]],
        "elsewhere": [_place(one) for one in plain.get("elsewhere", [])],
    }


def _site(plain: dict[str, Any]) -> dict[str, Any]:
    scale = plain["scale"] or {"value": None, "named": None}
    own = {key: value for key, value in plain.items() if key != "scale"}
    return {
        **{"pipeline": [], "cost": None, "cell": None},
        **own,
        "scale_value": scale["value"],
        "scale_named": scale["named"],
    }


def _finding(plain: dict[str, Any]) -> dict[str, Any]:
    place = ("path", "line", "column", "end_line", "end_column")
    same = ("code", "rule", "severity", "message", "site", "branch", "help", "evidence")
    more = ("confirmed_by", "fingerprint", "suppressed")
    return {
        **{key: plain[key] for key in (*same, *more)},
        "span": {**{key: plain[key] for key in place}, "cell": plain["cell"] or 0},
        "here": "",
        "why": "",
        "labels": [],
    }


def _place(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a finding of which no more than its code and place are known."""
    span = {**{key: plain[key] for key in ("path", "line")}, "cell": plain.get("cell") or 0}
    unknown = {"column": 1, "end_line": 0, "end_column": 0}
    texts = dict.fromkeys(("rule", "message", "here", "why", "help", "fingerprint"), "")
    nothing = dict.fromkeys(("site", "branch", "confirmed_by"))
    return {
        **texts,
        **nothing,
        "code": plain["code"],
        "severity": "note",
        "span": span | unknown,
        "evidence": [],
        "labels": [],
        "suppressed": False,
    }
