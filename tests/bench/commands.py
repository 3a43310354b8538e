"""Rows of the table of ``run.py`` for whole commands: one file, many files, files checked before."""

from __future__ import annotations

import ast
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.ratios import LINT, MODULE, TORCH, paired, process  # noqa: E402 - behind the path

Row = tuple[str, str, str, str]
SUBMISSIONS = 200


def one_file(rounds: int) -> Iterator[Row]:
    """Yield what a check of one file takes, without any cache, in its own process or not."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "one.py")
        file.write_text(MODULE)
        check = [*LINT, "check", "--isolated", "-q", "--no-cache", str(file)]
        yield (
            "(a) check one file",
            paired(process(*check), process(*TORCH), rounds),
            "1.30",
            "import torch",
        )
        bare = paired(process(*check, "--no-isolation"), process(*TORCH), rounds)
        yield "    the same with --no-isolation", bare, "-", "import torch"


def known_file(rounds: int) -> Iterator[Row]:
    """Yield what a check of a file takes that was checked before, against the first check."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "one.py")
        file.write_text(MODULE)
        check = [*LINT, "check", "--isolated", "-q", str(file)]
        process(*check, cwd=folder)()
        warm, cold = process(*check, cwd=folder), process(*check, "--no-cache", cwd=folder)
        yield (
            "(h) check one file that was checked before",
            paired(warm, cold, rounds),
            "0.50",
            "(a)",
        )


def submissions(rounds: int) -> Iterator[Row]:
    """Yield the seconds of each of many files, two at a time, nothing said of how to build them."""
    with tempfile.TemporaryDirectory() as folder:
        count = _submissions(Path(folder))
        taken = [_seconds_of(folder) / count for _ in range(max(1, min(rounds, 3)))]
        yield (
            f"(e) each of {count} submissions, --jobs 2",
            f"{statistics.median(taken):.2f} s",
            "0.35 s",
            "-",
        )


def _submissions(folder: Path) -> int:
    """Fill `folder` with fixtures that need nothing but torch; return how many."""
    found = [
        file
        for file in sorted(ROOT.glob("fixtures/*/**/*.py"))
        if file.parts[len(ROOT.parts) + 1] in ("correct", "faulty") and _plain(file)
    ]
    chosen = found[:: max(1, len(found) // SUBMISSIONS)][:SUBMISSIONS]
    for number, file in enumerate(chosen):
        shutil.copy(file, folder / f"submission{number:03}.py")
    return len(chosen)


def _plain(file: Path) -> bool:
    allowed = {"torch", "math", "__future__", "typing", "dataclasses"}
    for node in ast.walk(ast.parse(file.read_bytes())):
        names = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "." if not node.level else "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if any(name.partition(".")[0] not in allowed for name in names):
            return False
    return True


def _seconds_of(folder: str) -> float:
    command = [*LINT, "check", "--isolated", "--no-cache", "--jobs", "2", "--format", "json", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, check=False
    )
    return float(json.loads(done.stdout)["summary"]["seconds"])
