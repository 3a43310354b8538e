"""Targets that do their worst: they fail, or not, by themselves, and nothing else takes notice.

Those that wait until their time is over are a sample; MHA_LINT_HOSTILE=all runs all of them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mha_lint.runner.jobs import GRACE
from tests.runner.hostile import (
    HOSTILE,
    PATIENCE,
    TIMEOUT,
    Ran,
    differs,
    expected,
    faults,
    prepared,
    run,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at what runs in /proc")

NAMES = sorted(path.stem for path in HOSTILE.glob("*.py"))
WAITING = sorted(n for n in NAMES if str(expected(n)).endswith("5 s"))
SAMPLE = [
    "hangs_in_del",
    "hangs_in_native_code",
    "hangs_on_import",
    "ignores_signals",
    "prints_without_end",
]
EVERYTHING = os.environ.get("MHA_LINT_HOSTILE") == "all"
HEAVY = ["allocates_tensors", "allocates_without_end", "changes_the_process"]
"""They take seconds of processor time."""
PLAIN = [
    "aborts", "closes_everything", "exits_in_native_code", "forges_another", "forks",
    "forks_daemons", "hangs_in_del", "hops", "keeps_pipe_open", "kills_its_group",
    "kills_its_parent", "kills_itself", "leaves_threads", "prints_verdicts", "segfaults",
    "stops_itself", "terminates_itself",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Batch:
    names: tuple[str, ...]
    jobs: int
    plain: bool


def batch(names: list[str], jobs: int, *, plain: bool = False) -> Batch:
    kept = (n for n in names if expected(n, plain=plain) is not None)
    return Batch(tuple(kept), jobs, plain)


_QUICK = [n for n in NAMES if n not in WAITING and (EVERYTHING or n not in HEAVY)]
BATCHES = {
    "waiting": batch(WAITING if EVERYTHING else SAMPLE, 8),
    "quick": batch(_QUICK, 2),
    "plain": batch([*PLAIN, *(NAMES if EVERYTHING else ())], 4, plain=True),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run over the good files only."""
    folder = tmp_path_factory.mktemp("alone")
    return run(folder, prepared(folder, []))


@pytest.fixture(scope="module", params=list(BATCHES))
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Batch, Ran]:
    """A run over the good files with hostile ones between them."""
    chosen = BATCHES[request.param]
    chosen = Batch(tuple(dict.fromkeys(chosen.names)), chosen.jobs, chosen.plain)
    folder = tmp_path_factory.mktemp(request.param)
    targets = prepared(folder, chosen.names)
    return chosen, run(folder, targets, jobs=chosen.jobs, plain=chosen.plain)


def test_report_is_complete_and_valid(ran: tuple[Batch, Ran]) -> None:
    chosen, done = ran
    assert faults(done.report) == []
    told = [t["target"].partition("::")[0] for t in done.report["targets"]]
    middle = len(chosen.names) // 2
    hostile = [f"{name}.py" for name in chosen.names]
    assert told == ["first.py", *hostile[:middle], "faulty.py", *hostile[middle:], "last.py"]
    assert done.code == 2
    assert done.report["summary"]["targets"] == len(told)


def test_nothing_of_ours_breaks(ran: tuple[Batch, Ran]) -> None:
    _, done = ran
    assert done.report["crashes"] == []


def test_each_ends_as_it_says(ran: tuple[Batch, Ran]) -> None:
    chosen, done = ran
    found = {
        name: differs(done.target(f"{name}.py"), expected(name, plain=chosen.plain) or "any")
        for name in chosen.names
    }
    assert {name: why for name, why in found.items() if why} == {}


def test_others_are_judged_as_without_them(ran: tuple[Batch, Ran], alone: Ran) -> None:
    _, done = ran
    for name in ("first.py", "faulty.py", "last.py"):
        assert done.target(name) == alone.target(name)
    assert alone.target("first.py")["status"] == "checked"
    assert [f["code"] for f in alone.target("faulty.py")["findings"]] == ["MHA204"]


def test_nothing_is_left_behind(ran: tuple[Batch, Ran], alone: Ran) -> None:
    _, done = ran
    assert (done.processes, done.files) == ((), ())
    assert (alone.processes, alone.files) == ((), ())


def test_none_takes_longer_than_it_may(ran: tuple[Batch, Ran], alone: Ran) -> None:
    chosen, done = ran
    seconds = {t["target"]: t["seconds"] for t in done.report["targets"]}
    assert max(seconds.values()) < TIMEOUT + PATIENCE
    assert min(seconds.values()) >= 0
    rounds = (len(chosen.names) + 3) // chosen.jobs + 1
    assert done.seconds < alone.seconds + rounds * (TIMEOUT + GRACE) + PATIENCE


def test_what_targets_print_is_no_part_of_the_output(ran: tuple[Batch, Ran]) -> None:
    _, done = ran
    said: list[Any] = [line for line in done.stderr.splitlines() if line.strip()]
    assert said == []


def test_no_hostile_file_is_forgotten() -> None:
    in_sample = set(BATCHES["waiting"].names) | set(BATCHES["quick"].names)
    assert {*in_sample, *WAITING, *HEAVY} == set(NAMES)


def test_fixtures_say_how_they_end() -> None:
    assert all(Path(HOSTILE, f"{name}.py").read_text().startswith('"""') for name in NAMES)
    assert all(expected(name) for name in NAMES)
