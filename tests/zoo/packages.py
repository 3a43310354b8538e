"""Measure mha-lint with no configuration on the drawn classes of public packages.

    python -m venv ZOO
    ZOO/bin/pip install torch==2.13.0
    ZOO/bin/pip install --no-deps -r tests/zoo/packages_drawn.txt
    ZOO/bin/pip install --no-deps -r tests/zoo/packages_dependencies.txt -e .
    ZOO/bin/python tests/zoo/packages.py --results zoo.jsonl [--jobs 2] [--missed] [--report]

Runs ``mha-lint check FILE::Class --format json --isolated`` on every line of
``packages_classes.txt``, each in a process of its own with a limit on memory and time. Results are
appended to the file as they come, and what stands there is not run again; ``--missed`` runs those
again that were not analysed, and ``--report`` only prints. ``--site`` names another folder that
holds the packages' sources, as a checkout does; it is no part of the key. This is no part of the
everyday tests: the packages are not among the project's dependencies.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

CLASSES = Path(__file__).resolve().with_name("packages_classes.txt")
ANALYSED = {"checked", "undecided"}
SEVERITIES = ("error", "warning", "note")

Record: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one class may take: seconds inside mha-lint, and seconds until it is killed."""

    seconds: int
    wall: int


def drawn(classes: Path, packages: set[str], part: str) -> list[str]:
    """Return the lines in `classes` of `packages` (all if empty) that hold `part`."""
    lines = classes.read_text("utf-8").splitlines()
    return [
        line
        for line in lines
        if part in line
        and not line.startswith("#")
        and (not packages or line.partition("==")[0] in packages)
    ]


def read(results: Path) -> dict[str, Record]:
    """Return the last record of each key; a line that was cut off is left out."""
    found: dict[str, Record] = {}
    if results.exists():
        for line in results.read_text("utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[record["key"]] = record
    return found


def check(key: str, site: Path, python: str, limits: Limits) -> Record:
    """Run mha-lint on one class, and return what it said."""
    target = site / key.split("  ", 1)[1]
    command = [python, "-m", "mha_lint", "check", str(target), "--format", "json", "--isolated"]
    command += ["--timeout", str(limits.seconds)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        # A folder of its own: nothing that lies in the current one can be imported by accident.
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={"OMP_NUM_THREADS": "1"} | dict(os.environ) | {"CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limits.wall)
            ended = f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            ended = f"killed after {limits.wall} s"
    record: Record = {"key": key, "wall": round(time.monotonic() - start, 2)}
    record["exit"] = process.returncode
    try:
        report = json.loads(out)
    except json.JSONDecodeError:
        last = (err.strip().splitlines() or [""])[-1]
        reason = f"no report: {ended}: {last}"[:400]
        return record | {"status": "no-report", "reason": reason, "stderr": err[-3000:]}
    return record | outcome(report)


def outcome(report: Record) -> Record:
    """Return what is kept of a JSON report: the furthest target's status, and all findings."""
    order = ("checked", "undecided", "failed", "no-attention")
    targets = sorted(report["targets"], key=lambda each: order.index(each["status"]))
    best = targets[0] if targets else {"status": "no-attention", "reason": "no target"}
    return {
        "status": best["status"],
        "reason": best.get("reason"),
        "hint": best.get("hint"),
        "seconds": report["summary"]["seconds"],
        "sites": sum(len(each["sites"]) for each in targets),
        "undecided": [each for target in targets for each in target["undecided"]],
        "findings": [each for target in targets for each in target["findings"]],
        "crosscheck": [each for target in targets for each in target["crosscheck"]],
        "contract": [each for target in targets for each in target["contract"]],
        "crashes": report["crashes"],
    }


def normalised(reason: str | None) -> str:
    """Return a reason without its numbers, paths and arguments, to count those that are alike."""
    text = (reason or "no reason given").partition("; traced without a call")[0]
    text = re.sub(r"^(building|calling) .* failed( at line \d+)?: ", r"\1 failed: ", text)
    text = re.sub(r"^(building and calling|importing) \S+ took", r"\1 took", text)
    text = re.sub(r"/\S+/", "", text)
    return re.sub(r"[\[(][#, -]*[\])]", "[#]", re.sub(r"\d+(\.\d+)?", "#", text))


def row(name: str, records: list[Record]) -> str:
    """Return one row of the table."""
    status = Counter(each["status"] for each in records)
    analysed = status["checked"] + status["undecided"]
    findings = Counter(f["severity"] for each in records for f in each.get("findings", []))
    crashed = sum(bool(each.get("crashes")) for each in records)
    without = sum(
        each["status"] == "no-attention" or (each["reason"] or "").startswith("no attention was")
        for each in records
    )
    numbers = [len(records), analysed, status["undecided"], without]
    numbers += [len(records) - analysed - without, *(findings[s] for s in SEVERITIES), crashed]
    share = f"{analysed / max(len(records), 1):8.1%}"
    return f"{name:28}{share}" + "".join(f"{number:>8}" for number in numbers)


def table(records: list[Record]) -> Iterator[str]:
    """Yield the table, a row for each package."""
    heads = ("share", "classes", "analys.", "undec.", "no att.", "failed", *SEVERITIES, "crashed")
    yield f"{'package':28}" + "".join(f"{head:>8}" for head in heads)
    by_package: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_package[record["key"].split("  ")[0]].append(record)
    for name, group in sorted(by_package.items()):
        yield row(name, group)
    yield row("all", records)


def codes(records: list[Record]) -> Iterator[str]:
    """Yield the number of findings, and of classes that have one, for each code."""
    count: Counter[tuple[str, str, str]] = Counter()
    classes: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for record in records:
        for each in record.get("findings", []):
            code = (each["code"], each["rule"], each["severity"])
            count[code] += 1
            classes[code].add(record["key"])
    for code, number in sorted(count.items()):
        yield f"{code[0]} {code[1]:28}{code[2]:9}{number:5} in {len(classes[code])} classes"


def misses(records: list[Record]) -> Iterator[str]:
    """Yield the reasons of what was not analysed, the most frequent first, with each class."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record["status"] not in ANALYSED:
            groups[normalised(record.get("reason"))].append(record)
    for reason, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"{len(group):4}  {reason}"
        yield from (f"        {each['key']}: {each.get('reason')}" for each in group)


def errors(records: list[Record]) -> Iterator[str]:
    """Yield the findings of level error, one line each."""
    for record in records:
        for each in record.get("findings", []):
            if each["severity"] == "error" and not each["suppressed"]:
                where = f"{record['key']}:{each['line']}"
                yield f"{each['code']} {where}\n        {each['message']}"
                yield f"        {each['confirmed_by'] or 'not confirmed'}"


def crashes(records: list[Record]) -> Iterator[str]:
    """Yield the crashes of rules and facts."""
    for record in records:
        for each in record.get("crashes", []):
            yield f"{record['key']}: {each['where']}: {each['error']}"


def report(records: list[Record]) -> str:
    """Return the whole report."""
    parts: list[tuple[str, Iterable[str]]] = [
        ("", table(records)),
        ("findings per code", codes(records)),
        ("not analysed, by reason", misses(records)),
        ("findings of level error", errors(records)),
        ("crashes", crashes(records)),
    ]
    lines: list[str] = []
    for title, part in parts:
        lines += ["", title, *part] if title else part
    return "\n".join(lines) + "\n"


def run(keys: list[str], options: argparse.Namespace) -> None:
    """Check `keys`, and append each record to the results as it comes."""
    gigabytes = int(options.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (gigabytes, gigabytes))  # the children inherit it
    limits = Limits(options.timeout, options.timeout * 2 + 60)
    with ThreadPoolExecutor(options.jobs) as pool, options.results.open("a") as results:
        waiting = [pool.submit(check, key, options.site, options.python, limits) for key in keys]
        for done, each in enumerate(as_completed(waiting), 1):
            record = each.result()
            results.write(json.dumps(record) + "\n")
            results.flush()
            line = f"{done}/{len(keys)} {record['status']:12} {record['wall']:6.1f} s "
            sys.stderr.write(f"{line} {record['key']}\n")


def main() -> int:
    """Run what is asked for, and print the report."""
    parser = argparse.ArgumentParser(description="Measure mha-lint on public packages.")
    parser.add_argument(
        "--results", type=Path, required=True, help="a JSON-lines file, appended to"
    )
    parser.add_argument("--classes", type=Path, default=CLASSES, help="the list of classes")
    parser.add_argument("--packages", default="", help="names, separated by commas")
    parser.add_argument("--only", default="", help="classes whose line holds this text")
    parser.add_argument("--missed", action="store_true", help="run again what was not analysed")
    parser.add_argument("--again", action="store_true", help="run again whatever is selected")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one class")
    parser.add_argument("--memory", type=float, default=6, help="GiB of addresses for one class")
    parser.add_argument("--python", default=sys.executable, help="where the packages are")
    site = Path(sysconfig.get_path("purelib"))
    parser.add_argument("--site", type=Path, default=site, help="the folder of their sources")
    options = parser.parse_args()
    keys = drawn(
        options.classes, {name for name in options.packages.split(",") if name}, options.only
    )
    known = read(options.results)

    def due(key: str) -> bool:
        done = known.get(key)
        return done is None or options.again or (options.missed and done["status"] not in ANALYSED)

    if not options.report:
        start = time.monotonic()
        # In an order that has nothing to do with packages: a run that was cut short is a sample.
        todo = sorted(filter(due, keys), key=lambda key: sha256(key.encode()).digest())
        run(todo, options)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        took = time.monotonic() - start
        sys.stderr.write(f"{len(todo)} run in {took:.0f} s, at most {peak:.1f} GiB in one\n")
        known = read(options.results)
    sys.stdout.write(report([known[key] for key in keys if key in known]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
