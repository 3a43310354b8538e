"""Judge a small model of every architecture that transformers knows, each in a process of its own.

    python tests/zoo/models.py --out models.jsonl [--jobs 2] [--only bert,gpt2] [--again]

One line of JSON per architecture is added to ``--out``; those that are there are not tried again
(``--again``: what was not judged is). At the end it prints how many attention classes were reached
and judged, what was found, and why the others were not judged. A class counts as reached if a call
of it multiplied data with data twice, and no smaller module in it did.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.zoo import architectures

TIMEOUT = 60.0
JUDGED = ("checked", "undecided")


def one(model_type: str) -> dict[str, Any]:
    """Shrink, build, call and judge one architecture in this process."""
    import torch
    import transformers

    from mha_lint.engine.config import folded, judge_copy
    from mha_lint.model.settings import Settings
    from mha_lint.model.target import TargetSpec
    from mha_lint.rulebook.pack import builtin_pack, load_pack
    from mha_lint.targets.pretrained import CannotShrinkError, shrunk
    from mha_lint.targets.pretrained.subject import ConfigMaker

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    row: dict[str, Any] = {"model_type": model_type, "status": "not built"}
    start = time.monotonic()
    try:
        config = transformers.CONFIG_MAPPING[model_type]()
        small = shrunk(config)
        row["built"] = round(time.monotonic() - start, 2)
        spec = TargetSpec(text=model_type)
        subject = ConfigMaker(spec, config, small).first()
        row |= {"status": "not judged", "reached": reached(subject)}
        judged = judge_copy(subject, spec, Settings("/"), load_pack(builtin_pack()))
        report = folded(judged.report)
        row |= {
            "status": str(report.status),
            "reason": report.reason,
            "sites": [(s.id.partition(".")[0], s.module, s.line, s.kind) for s in report.sites],
            "findings": [
                (f.code, str(f.severity), f"{Path(f.span.path).name}:{f.span.line}", f.message)
                for f in report.findings
            ],
            "undecided": sorted({(u.code, u.why) for u in report.undecided}),
            "crosscheck": [(c.verdict, c.departs_at, c.explanation) for c in report.crosscheck],
            "crashes": [c.traceback for c in judged.crashes],
        }
    except CannotShrinkError as error:
        row["reason"] = f"{error.stage}: {type(error.error).__name__}: {error.error}"
        if error.stage == "build":
            row["stage"] = architectures.unbuildable(config, error.error)
    except Exception as error:
        row["reason"] = f"{type(error).__name__}: {error}"
    row["reason"] = " ".join((row.get("reason") or "").split())[:400]
    row["seconds"] = round(time.monotonic() - start, 2)
    return row


def reached(subject: Any) -> list[tuple[str, str]]:
    """Return class and path of the smallest modules that multiplied data with data twice."""
    from mha_lint.capture import CaptureError, record
    from mha_lint.sites.parts import parts_of

    try:
        with subject.environment():
            recording = record(subject.module, subject.args, subject.kwargs, compare=False)
    except CaptureError:
        return []
    return [(part.class_name, part.path) for part in parts_of(recording)]


def table(rows: Iterable[dict[str, Any]]) -> None:
    """Print what was reached, judged and found."""
    rows = list(rows)
    kinds = collections.Counter(row["status"] for row in rows)
    print(f"tried {len(rows)}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    print(f"seconds: {sum(row.get('wall', row['seconds']) for row in rows):.0f}")
    found: dict[str, list[str]] = collections.defaultdict(list)
    classes, judged, other = 0, 0, collections.Counter[str]()
    missed: list[str] = []
    for row in rows:
        sited = {name for name, *_ in row.get("sites", ())}
        for name in sorted({name for name, _ in row.get("reached", ())} | sited):
            if name in sited:
                classes, judged = classes + 1, judged + 1
            elif row["status"] in JUDGED or row.get("reason", "").startswith("no attention"):
                other[name] += 1  # it was recorded and searched, and holds no attention
            else:
                classes += 1
                missed.append(
                    f"{row['model_type']}::{name}: {row['status']}: {row['reason'][:150]}"
                )
        for code, severity, where, message in row.get("findings", ()):
            found[f"{code} {severity}"].append(f"{row['model_type']} {where}: {message}")
    share = 100 * judged / classes if classes else 0.0
    print(f"attention classes reached {classes}, judged {judged} ({share:.1f} %)")
    undecided = sum(1 for row in rows if row["status"] == "undecided")
    print(f"models with an undecided rule: {undecided}")
    for code, places in sorted(found.items()):
        print(f"\n{code}: {len(places)}")
        for place in places:
            print(f"  {place}")
    print("\nnot judged")
    for line in missed:
        print(f"  {line}")
    print("\nnot built or called")
    for row in rows:
        if row["status"] in ("not built", "time", "died"):
            print(f"  {row['model_type']:32} {row.get('stage', '')} {row['reason'][:150]}")
    print("\nmodules that multiply data twice and hold no attention")
    for name, count in sorted(other.items()):
        print(f"  {name} {count}")
    for row in rows:
        for crash in row.get("crashes", ()):
            print(f"\ncrash in {row['model_type']}\n{crash}")


def main() -> None:
    """Run what is not in the file yet, and print the table."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if given.out.exists():
        lines = given.out.read_text().splitlines()
        rows = {row["model_type"]: row for row in map(json.loads, lines)}
    names = given.only.split(",") if given.only else sorted(MODEL_MAPPING_NAMES)
    names = [n for n in names if n in CONFIG_MAPPING_NAMES]
    waiting = [
        n for n in names
        if n not in rows or (given.again and rows[n]["status"] not in JUDGED) or given.only
    ]  # fmt: skip
    if not given.report:
        architectures.preload()
        importlib.import_module("mha_lint.engine.config")  # once, before the forks
        with given.out.open("a") as out:
            for row in architectures.in_processes(waiting, given.jobs, one):
                row.setdefault("status", row.get("stage", "died"))
                row.setdefault("reason", row.get("error", ""))
                rows[row["model_type"]] = row
                out.write(json.dumps(row) + "\n")
                out.flush()
    table([rows[n] for n in names if n in rows])


if __name__ == "__main__":
    main()
