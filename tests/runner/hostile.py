"""Runs ``mha-lint check`` over hostile files between good ones, and looks at what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from mha_lint.report.json_format import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = ROOT / "fixtures" / "hostile"
TIMEOUT, PATIENCE = 5, 5.0
"""Seconds that a target may take, and that a run may take beyond."""
MARK = "MHA_LINT_TEST_RUN"

GOOD = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, t, d))


def use():
    return Attention(16, 4)(torch.randn(2, 5, 16))
"""
FAULTY = GOOD.replace("softmax(-1)", "softmax(-2)")


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run left: its output, and processes and files that should not be there."""

    code: int
    report: dict[str, Any]
    stderr: str
    seconds: float
    processes: tuple[str, ...]
    files: tuple[str, ...]

    def target(self, name: str) -> dict[str, Any]:
        """Return the entry of the target whose path ends in `name`."""
        (found,) = [t for t in self.report["targets"] if t["target"].partition("::")[0] == name]
        return {k: v for k, v in found.items() if k != "seconds"}


def run(
    folder: Path,
    targets: Sequence[str],
    *options: str,
    jobs: int = 2,
    plain: bool = False,
) -> Ran:
    """Check `targets` in `folder`, without cache; `plain`: without namespaces."""
    mark = uuid.uuid4().hex
    temporary = folder / f"tmp-{mark}"
    temporary.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), MARK: mark}
    environment.pop("MHA_LINT_PLAIN_PROCESSES", None)
    if plain:
        environment["MHA_LINT_PLAIN_PROCESSES"] = "1"
    limits = ["--timeout", str(TIMEOUT), "--memory", "1G"]
    command = [
        sys.executable,
        "-P",
        "-m",
        "mha_lint",
        "check",
        *targets,
        "--no-cache",
        "--isolated",
    ]
    command += ["--format", "json", "-j", str(jobs), *limits, *options]
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"no JSON: {done.stdout[-2000:]!r}\n{done.stderr[-2000:]}") from None
    return Ran(
        done.returncode,
        report,
        done.stderr,
        seconds,
        _left_running(mark),
        tuple(sorted(p.name for p in temporary.iterdir())),
    )


def _left_running(mark: str) -> tuple[str, ...]:
    """Return the command lines of processes of the run that are still there seconds later."""
    for _ in range(100):
        found = tuple(of_run(f"{MARK}={mark}"))
        if not found:
            return ()
        time.sleep(0.05)
    return found


def of_run(variable: str) -> list[str]:
    """Return the command lines of all processes that were started with `variable`."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (place / "environ").read_bytes().split(b"\0"):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if place.name != str(os.getpid()) and command:
                    found.append(f"{place.name}: {command[:100]}")
    return found


def prepared(folder: Path, names: Sequence[str]) -> list[str]:
    """Copy the hostile fixtures `names` into `folder`, good files around them; return all targets."""
    (folder / "first.py").write_text(GOOD)
    (folder / "faulty.py").write_text(FAULTY)
    (folder / "last.py").write_text(GOOD)
    for name in names:
        shutil.copy(HOSTILE / f"{name}.py", folder)
    hostile = [f"{name}.py" for name in names]
    middle = len(hostile) // 2
    return ["first.py", *hostile[:middle], "faulty.py", *hostile[middle:], "last.py"]


def expected(name: str, *, plain: bool = False) -> str | None:
    """Return what the fixture says of its end: a status, ": " and a pattern; None: not in this run."""
    source = (HOSTILE / f"{name}.py").read_text()
    said: dict[str, str] = dict(
        re.findall(r"^# (ends|ends-plain|only): (.+)$", source, re.MULTILINE)
    )
    if plain and said.get("only") == "namespace":
        return None
    return said["ends-plain"] if plain and "ends-plain" in said else said["ends"]


def differs(target: dict[str, Any], wanted: str) -> str:
    """Return how `target` ended other than `wanted`; empty: it did not."""
    status, _, pattern = wanted.partition(": ")
    told = f"{target['status']}: {target['reason']}"
    if status == "any":
        return ""
    if target["status"] != status or not re.match(pattern, target["reason"] or ""):
        return f"{told!r}, not {wanted!r}"
    return ""


def faults(report: object) -> list[str]:
    """Return where `report` is not as its schema says."""
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft202012Validator(schema)
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(report)]
