"""A pool of workers, with real processes: what it yields, and what it outlives."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mha_lint.model.report import Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.runner import linux
from mha_lint.runner.jobs import Limits, Plan
from mha_lint.runner.pool import Pool, ServerError
from mha_lint.runner.reads import digest
from tests.runner.hostile import GOOD, HOSTILE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at what runs in /proc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("pool")
    for name in ("a.py", "b.py", "c.py"):
        (here / name).write_text(GOOD)
    for name in ("exits_in_native_code.py", "hangs_in_del.py", "prints_verdicts.py"):
        (here / name).write_text((HOSTILE / name).read_text())
    return here


@pytest.fixture
def pool(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    settings = Settings(cwd=str(folder), timeout=3.0)
    with Pool(Plan(settings, Limits(memory=1 << 30)), jobs=2) as made:
        yield made


def spec(name: str) -> TargetSpec:
    return TargetSpec(f"{name}.py::Attention", path=f"{name}.py", qualname="Attention")


def below(process: int) -> set[int]:
    return linux.descendants(process, linux.parents())


def test_each_target_has_its_outcome(pool: Pool, folder: Path) -> None:
    names = ["a", "exits_in_native_code", "hangs_in_del", "b"]
    started: list[str] = []
    found = dict(pool.run([spec(n) for n in names], lambda s: started.append(s.text)))
    assert sorted(found) == [0, 1, 2, 3]
    assert started == [f"{n}.py::Attention" for n in names]
    first, exits, hangs, last = (found[n].report for n in range(4))
    assert (first.status, first.target) == (Status.CHECKED, "a.py::Attention")
    assert last.sites == first.sites
    assert exits.reason == ("its process ended by itself with exit code 0 before it was judged")
    assert hangs.reason == "it was not judged within 3 s"
    assert 4.0 <= hangs.seconds < 8.0
    assert 0.0 < first.seconds < 3.0
    assert [found[n].lasting for n in range(4)] == [True, False, False, True]
    path = str(folder / "a.py")
    assert {r.path: r.digest for r in found[0].reads}[path] == digest(path)


def test_what_a_target_writes_and_keeps_is_gone(pool: Pool, folder: Path) -> None:
    ((_, found),) = pool.run([spec("prints_verdicts")])
    assert found.report.status is Status.CHECKED
    (scratch,) = folder.glob("mha-lint-*")
    for _ in range(100):
        if [p.name for p in scratch.rglob("*")] == ["server1"]:
            break
        time.sleep(0.05)
    assert [p.name for p in scratch.rglob("*")] == ["server1"]
    pool.close()
    assert list(folder.glob("mha-lint-*")) == []


@pytest.mark.parametrize("depth", [1, 2, 3], ids=["starter", "holder", "server"])
def test_targets_are_judged_although_the_server_is_killed(pool: Pool, depth: int) -> None:
    killed: list[int] = []

    def kill_server(_: TargetSpec) -> None:
        found, level = linux.parents(), [os.getpid()]
        for _turn in range(depth):
            level = [p for p, parent in found.items() if parent in level]
        if not killed and level:
            killed.append(level[0])
            os.kill(level[0], signal.SIGKILL)

    assert pool.cuda() in (True, False)
    found = dict(pool.run([spec(n) for n in "abc"], kill_server))
    assert killed
    assert [found[n].report.status for n in range(3)] == [Status.CHECKED] * 3


def test_a_server_that_is_killed_before_it_is_ready_is_replaced(pool: Pool) -> None:
    server = pool._server
    assert server is not None
    server._process.kill()
    ((_, found),) = pool.run([spec("a")])
    assert found.report.status is Status.CHECKED


def test_nothing_runs_on_behind_a_closed_pool(pool: Pool) -> None:
    before = below(os.getpid())
    running = pool.run([spec("hangs_in_del")])
    pool.cuda()
    server = pool._server
    assert server is not None
    assert pool._started == 1
    at_work = below(server._process.pid)
    assert at_work
    pool.close()
    running.close()  # type: ignore[attr-defined]  # it is a generator
    for _ in range(100):
        if not at_work & set(linux.parents()):
            break
        time.sleep(0.02)
    assert not at_work & set(linux.parents())
    assert not (below(os.getpid()) - before) & at_work


def test_a_torch_that_cannot_be_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not for this machine')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Pool(Plan(Settings(cwd=str(tmp_path)))) as made, pytest.raises(ServerError) as caught:
        made.cuda()
    told = "the process that imports torch could not be started: ImportError: not for this machine"
    assert str(caught.value) == told
    assert not caught.value.killed
