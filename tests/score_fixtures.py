"""Scores mha-lint on fixtures/, once with the stated build and call and once with none.

    python tests/score_fixtures.py [--mode given|zero-config|both] [--command "mha-lint"] [-v]

Each mode is one run of ``mha-lint check --config FILE --format json`` over all fixtures. Counted:
the cause (an expected code), the line (an expected code on its statement, or a line beside it),
noise (unexpected codes on faulty files), false alarms (a warning or error on a correct file) and
the share of files that were analysed. Files with ``expect-todo`` are run, but not counted. Exits 1
if a threshold is missed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fixtures.conftest import Fixture, fixtures  # noqa: E402  # needs the line above

LOUD = {"warning", "error"}
MIN_CAUSE = {"given": 0.97, "zero-config": 0.85}
MIN_LINE = {"given": 0.95, "zero-config": 0.85}
MAX_NOISE, MAX_FALSE_ALARMS = 5, 0
MIN_ANALYSED = {"given": 1.0, "zero-config": 0.85}


@dataclass(slots=True)
class Score:
    """The counts of one mode, by folder and in all, and a line for each file that went wrong."""

    mode: str
    seconds: float = 0.0
    total: Counter[str] = field(default_factory=Counter)
    folders: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    misses: list[str] = field(default_factory=list)

    def add(self, fixture: Fixture, **counts: int) -> None:
        """Count for all files and for the folder of `fixture`."""
        self.total.update(counts)
        self.folders[str(Path(fixture.name).parent)].update(counts)

    def failures(self) -> list[str]:
        """Return the thresholds that were missed."""
        n = self.total
        faulty, files = max(n["faulty"], 1), max(n["faulty"] + n["correct"], 1)
        checks = [
            ("cause", n["cause"] / faulty >= MIN_CAUSE[self.mode]),
            ("line", n["line"] / faulty >= MIN_LINE[self.mode]),
            ("noise", n["noise"] <= MAX_NOISE),
            ("false alarms", n["false"] <= MAX_FALSE_ALARMS),
            ("analysed", n["analysed"] / files >= MIN_ANALYSED[self.mode]),
        ]
        return [name for name, holds in checks if not holds]


def targets_toml(cases: list[Fixture], mode: str) -> str:
    """Return a configuration that names every fixture as a target."""
    lines = []
    for case in cases:
        lines += ["[[tool.mha-lint.target]]", f"path = {json.dumps(str(case.path))}"]
        lines.append(f"class = {json.dumps(case.qualname)}")
        if mode == "given":
            lines += [f"build = {json.dumps(case.build)}", f"call = {json.dumps(case.call)}"]
    return "\n".join(lines) + "\n"


def run(cases: list[Fixture], mode: str, command: str) -> tuple[dict[str, Any], float]:
    """Return the JSON report of one run over `cases`, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        config, result = Path(folder, "targets.toml"), Path(folder, "result.json")
        config.write_text(targets_toml(cases, mode), encoding="utf-8")
        arguments = ["check", "--config", str(config), "--format", "json", "-o", str(result)]
        start = time.monotonic()
        done = subprocess.run(
            [*shlex.split(command), *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        seconds = time.monotonic() - start
        if not result.exists():
            raise SystemExit(f"exit {done.returncode}, no report\n{done.stderr[-4000:]}")
        report: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return report, seconds


def score(cases: list[Fixture], report: dict[str, Any], mode: str) -> Score:
    """Return the counts of `report`."""
    by_path: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for target in report["targets"]:
        by_path[Path(target["path"]).resolve()].append(target)
    result = Score(mode)
    for case in cases:
        targets = by_path[case.path.resolve()]
        expected = {code for e in case.expected for code in e.codes}
        found = [
            f
            for target in targets
            for f in target["findings"]
            if not f.get("suppressed") and (f["severity"] in LOUD or f["code"] in expected)
        ]
        listed = ", ".join(f"{f['code']}@{f['line']}" for f in found) or "nothing"
        analysed = any(t["status"] in {"checked", "undecided"} for t in targets)
        if case.todo:
            result.add(case, todo=1)
            continue
        result.add(case, analysed=int(analysed))
        if not analysed:
            reason = next((t.get("reason") for t in targets), "missing from the report")
            result.misses.append(f"{case.name}: not analysed: {reason}")
        if not case.expected:
            alarms = [f for f in found if f["code"] not in case.allowed]
            result.add(case, correct=1, false=int(bool(alarms)))
            if alarms:
                result.misses.append(f"{case.name}: FALSE ALARM {listed}")
            continue
        hits = [[f for f in found if f["code"] in e.codes] for e in case.expected]
        placed = [
            any(abs(f["line"] - line) <= 1 for f in hit for line in e.lines)
            for e, hit in zip(case.expected, hits, strict=True)
        ]
        noise = len({f["code"] for f in found} - expected - case.allowed)
        result.add(case, faulty=1, cause=int(all(hits)), line=int(all(placed)), noise=noise)
        if noise or not all(placed):
            wanted = ", ".join(str(e) for e in case.expected)
            result.misses.append(f"{case.name}: expected {wanted}; found {listed}")
    return result


def table(result: Score, *, verbose: bool) -> str:
    """Return the score as text, with a row per folder and every miss if `verbose`."""
    keys = ("faulty", "cause", "line", "noise", "correct", "false", "analysed", "todo")
    rows = [f"{result.mode:26}" + "".join(f"{key:>9}" for key in keys)]
    folders = sorted(result.folders.items()) if verbose else []
    for folder, counts in [*folders, ("all", result.total)]:
        rows.append(f"{folder:26}" + "".join(f"{counts[key]:9}" for key in keys))
    rows += [f"  {miss}" for miss in (result.misses if verbose else result.misses[:15])]
    failed = result.failures()
    verdict = f"MISSED: {', '.join(failed)}" if failed else "all thresholds hold"
    return "\n".join([*rows, f"{result.mode}: {verdict}; {result.seconds:.1f} s", ""])


def main() -> int:
    """Score the asked modes; return 1 if a threshold is missed."""
    parser = argparse.ArgumentParser(description="Score mha-lint on fixtures/.")
    parser.add_argument("--mode", choices=(*MIN_ANALYSED, "both"), default="both")
    parser.add_argument("--command", default=f"{shlex.quote(sys.executable)} -m mha_lint")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    cases = fixtures()
    modes = list(MIN_ANALYSED) if arguments.mode == "both" else [arguments.mode]
    failed = False
    for mode in modes:
        report, seconds = run(cases, mode, arguments.command)
        result = score(cases, report, mode)
        result.seconds = seconds
        sys.stdout.write(table(result, verbose=arguments.verbose))
        failed |= bool(result.failures())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
