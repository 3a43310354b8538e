"""Kills runs of mha-lint at random moments, and looks at what they leave.

    python tests/runner/kill.py [TIMES] [--seed N]

Each time a run over a dozen fixtures is started, with two jobs, cache and an output file, and SIGKILL is
sent to its command or to one of the processes below it at a random moment. Then: no process of it is
left, the output file is absent, the old one or whole, every cache entry is whole, no temporary folder
is left; where the command itself lives on, its report is the same as that of an undisturbed run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mha_lint.runner.linux import parents  # noqa: E402  # needs the line above
from tests.runner.hostile import MARK, of_run  # noqa: E402

FILES = 12
PATIENCE = 10.0
"""Seconds after which nothing may be left of a run that was killed."""
DEPTHS = ("command", "starter", "holder", "server", "worker")
"""What a process of a run is, by how many parents it has in it."""
OLD = '{"version": 1, "old": true}\n'


@dataclass(slots=True)
class Tally:
    """What was seen."""

    victims: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)
    beside: int = 0
    """Files that a write left beside the one that it was to replace."""


class Site:
    """A folder of fixtures to be checked, and how that ends undisturbed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "report.json"
        self.cache = folder / ".mha_lint_cache"
        self.temporary = folder / "tmp"
        found = [*sorted((ROOT / "fixtures" / "faulty" / "scores").glob("*.py"))[: FILES // 2]]
        found += sorted((ROOT / "fixtures" / "correct" / "masks").glob("*.py"))[: FILES // 2]
        for index, path in enumerate(found):
            shutil.copy(path, folder / f"m{index:02}_{path.name}")
        self.names = sorted(p.name for p in folder.glob("*.py"))
        started = time.monotonic()
        self.code = self.start("reference", "--no-cache").wait()
        self.seconds = time.monotonic() - started
        self.report = without_seconds(self.output.read_text())

    def start(self, mark: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a run."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        command = [sys.executable, "-P", "-m", "mha_lint", "check", *self.names, "-j", "2", "-q"]
        command += ["--format", "json", "--isolated", "-o", str(self.output), *options]
        path = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), MARK: mark}
        return subprocess.Popen(
            command, cwd=self.folder, env=os.environ | path, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def without_seconds(text: str) -> Any:
    """Return the report that `text` holds, without the times in it."""
    plain = json.loads(text)
    for one in (plain["summary"], *plain["targets"]):
        one.pop("seconds")
    return plain


def processes(command: int) -> dict[str, list[int]]:
    """Return the processes of a run by what they are."""
    found = parents()
    out: dict[str, list[int]] = {}
    depths = {command: 0}
    grown = True
    while grown:
        grown = False
        for process, parent in found.items():
            if parent in depths and process not in depths:
                depths[process] = depths[parent] + 1
                grown = True
    for process, depth in depths.items():
        out.setdefault(DEPTHS[min(depth, len(DEPTHS) - 1)], []).append(process)
    return out


def once(site: Site, chance: random.Random, tally: Tally) -> None:
    """Start a run, kill something of it, and look at what is left."""
    if chance.random() < 0.8:
        shutil.rmtree(site.cache, ignore_errors=True)
    before = chance.random() < 0.5
    site.output.unlink(missing_ok=True)
    if before:
        site.output.write_text(OLD)
    mark = uuid.uuid4().hex
    wanted = chance.choice(DEPTHS)
    run = site.start(mark)
    time.sleep(chance.uniform(0, site.seconds * 0.95))
    there = processes(run.pid)
    while run.poll() is None and wanted not in there:
        time.sleep(0.005)
        there = processes(run.pid)
    if run.poll() is not None:
        tally.ends[f"{wanted}: the run had ended"] += 1
    else:
        victim = chance.choice(there[wanted])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            tally.ends[f"{wanted}: it had just ended"] += 1
        else:
            tally.victims[wanted] += 1
    killed = time.monotonic()
    code = run.wait()
    waited = time.monotonic() - killed
    tally.ends[f"{wanted}: exit code {code}"] += 1
    look(site, mark, tally, what=f"{wanted}, exit code {code}", old=before, lived=code >= 0)
    if waited > site.seconds * 3 + 20:
        tally.faults.append(f"{wanted}: ended only {waited:.1f} s later")


def look(site: Site, mark: str, tally: Tally, *, what: str, old: bool, lived: bool) -> None:
    """Note what a run should not have left."""
    started = time.monotonic()
    left, files = of_run(f"{MARK}={mark}"), list(site.temporary.iterdir())
    while (left or files) and time.monotonic() - started < PATIENCE:
        time.sleep(0.05)
        left, files = of_run(f"{MARK}={mark}"), list(site.temporary.iterdir())
    taken = time.monotonic() - started
    kind = what.partition(",")[0]
    tally.slowest[kind] = max(tally.slowest.get(kind, 0.0), taken)
    if left:
        tally.faults.append(f"{what}: still running: {left}")
    if files:
        tally.faults.append(f"{what}: left in the temporary folder: {[f.name for f in files]}")
    if site.output.exists():
        text = site.output.read_text()
        if text == OLD:
            if not old:
                tally.faults.append(f"{what}: an old report from nowhere")
            if lived and what.endswith(f" {site.code}"):
                tally.faults.append(f"{what}: no report was written")
        else:
            try:
                if without_seconds(text) != site.report:
                    tally.faults.append(f"{what}: another report")
            except ValueError:
                tally.faults.append(f"{what}: half a report, {len(text)} characters")
    elif old or (lived and what.endswith(f" {site.code}")):
        tally.faults.append(f"{what}: no report")
    for path in site.cache.rglob("*.json"):
        if path.name.startswith("."):
            continue
        try:
            json.loads(path.read_bytes())
        except ValueError:
            tally.faults.append(f"{what}: the cache entry {path.name} is broken")
    beside = [*site.cache.rglob(".*.json.*"), *site.folder.glob(".report*")]
    tally.beside += len(beside)
    for path in beside:
        path.unlink()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill as often as asked, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("times", nargs="?", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    chance, tally = random.Random(given.seed), Tally()
    with tempfile.TemporaryDirectory(prefix="mha-lint-kill-") as folder:
        site = Site(Path(folder))
        _say(f"undisturbed: {site.seconds:.1f} s, exit code {site.code}")
        number = 0
        while tally.victims.total() < given.times:
            once(site, chance, tally)
            number += 1
            if number % 10 == 0:
                if site.start("after").wait() != site.code or (
                    without_seconds(site.output.read_text()) != site.report
                ):
                    tally.faults.append("a run with the cache that was left differs")
                _say(f"{tally.victims.total()}: {len(tally.faults)} faults")
    _say(f"killed: {dict(tally.victims)}")
    _say(f"ends: {dict(sorted(tally.ends.items()))}")
    _say(f"seconds until nothing was left, at most: {tally.slowest}")
    _say(f"temporary files beside an entry or the report: {tally.beside}")
    _say("\n  ".join([f"{len(tally.faults)} faults", *tally.faults]))
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
