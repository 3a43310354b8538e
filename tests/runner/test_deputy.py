"""What a worker of a cluster does with one target, called here without any cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mha_lint.model import wire
from mha_lint.model.report import NotChecked, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.runner import deputy, linux
from mha_lint.runner.deputy import Surroundings
from mha_lint.runner.jobs import Outcome, Plan
from mha_lint.runner.pool import ServerError
from mha_lint.runner.reads import digest
from mha_lint.targets.resolve import parse_target
from tests.runner.attention import WRONG

HERE = wire.dump(Surroundings.here())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[deputy._Kept]:
    fresh = deputy._Kept()
    monkeypatch.setattr(deputy, "_kept", fresh)
    yield fresh
    fresh._close()


@pytest.fixture
def plan(tmp_path: Path, kept: deputy._Kept) -> bytes:
    (tmp_path / "a.py").write_text(WRONG)
    return wire.dump(Plan(Settings(str(tmp_path))))


def spec(plan: bytes, text: str = "a.py::Attention") -> TargetSpec:
    found = parse_target(text, cwd=wire.load(Plan, plan).settings.cwd)
    assert isinstance(found, TargetSpec)
    return found


def judge(
    plan: bytes,
    run: str = "1",
    *,
    content: str | None = None,
    asked: bytes = HERE,
    text: str = "a.py::Attention",
) -> Outcome:
    one = spec(plan, text)
    if content is None:
        content = digest(str(Path(wire.load(Plan, plan).settings.cwd, one.path or "")))
    return wire.load(Outcome, deputy.judge(run, plan, wire.dump(one), content, asked))


def why(outcome: Outcome) -> str:
    assert outcome.report.status is Status.FAILED
    assert not outcome.lasting
    return outcome.report.reason or ""


def settled() -> set[int]:
    """Return what runs below this process when nothing has begun or ended for a moment."""
    now: set[int] = set()
    for _ in range(100):
        before, now = now, set(linux.descendants(os.getpid(), linux.parents()))
        if now == before:
            break
        time.sleep(0.2)
    return now


def test_a_target_is_judged_in_processes_that_end_when_the_run_does(
    plan: bytes, kept: deputy._Kept
) -> None:
    before = settled()
    outcome = judge(plan)
    assert [f.code for f in outcome.report.findings] == ["MHA204"]
    assert outcome.lasting
    started = settled() - before
    assert started
    asyncio.run(deputy.release("another run"))
    assert started <= set(linux.parents())
    asyncio.run(deputy.release("1"))
    assert not started & set(linux.parents())
    assert judge(plan, "2").report.findings == outcome.report.findings
    assert why(judge(plan)) == "the run was given up before it was judged"


def test_another_file_than_was_meant_is_not_judged(plan: bytes, tmp_path: Path) -> None:
    found = why(judge(plan, content="ab" * 32))
    assert found.endswith(f"has another content of {tmp_path / 'a.py'}")
    one = wire.dump(spec(plan))
    (tmp_path / "a.py").unlink()
    outcome = wire.load(Outcome, deputy.judge("1", plan, one, "ab" * 32, HERE))
    assert why(outcome).endswith(f"cannot read {tmp_path / 'a.py'}")
    assert outcome.report.target == "a.py::Attention"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mha_lint": "9.9"}, "and where the run was started it is 9.9"),
        ({"torch": "1.0.0+cpu"}, "and where the run was started it is 1.0.0"),
        ({"torch": ""}, "and where the run was started it is missing"),
        ({"python": "3.1.4"}, "and where the run was started it is 3.1"),
    ],
)
def test_another_environment_judges_nothing(
    change: dict[str, str], said: str, plan: bytes, kept: deputy._Kept
) -> None:
    there = dataclasses.replace(Surroundings.here(), **change)
    found = why(judge(plan, asked=wire.dump(there)))
    assert said in found
    assert kept._pool is None


class FakePool:
    """Judges as it is told to, and notes how many do so at a time."""

    made: list[FakePool]
    fails: Exception | None = None
    pause = threading.Event()

    def __init__(self, plan: Plan) -> None:
        self.closed, self.busy, self.most = False, 0, 0
        self.made.append(self)

    def run(self, specs: list[TargetSpec]) -> Iterator[tuple[int, Outcome]]:
        assert not self.closed
        if self.fails is not None:
            raise self.fails
        self.busy += 1
        self.most = max(self.most, self.busy)
        self.pause.wait(5)
        time.sleep(0.01)
        self.busy -= 1
        for number, one in enumerate(specs):
            report = TargetReport(one.text, "a.py", "Attention", 1, Status.CHECKED)
            yield number, Outcome(report, lasting=True)

    def cuda(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakePool]:
    monkeypatch.setattr(deputy, "Pool", FakePool)
    monkeypatch.setattr(FakePool, "made", [], raising=False)
    monkeypatch.setattr(FakePool, "fails", None)
    monkeypatch.setattr(FakePool, "pause", threading.Event())
    FakePool.pause.set()
    return FakePool


def test_threads_take_turns_with_one_pool(plan: bytes, fake: type[FakePool]) -> None:
    threads = [threading.Thread(target=judge, args=(plan,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (pool,) = fake.made
    assert (pool.most, pool.closed) == (1, False)
    assert deputy.cuda("1", plan)


def test_another_run_takes_the_place_of_the_last(plan: bytes, fake: type[FakePool]) -> None:
    judge(plan)
    judge(plan, "2")
    assert [pool.closed for pool in fake.made] == [True, False]


def test_a_run_that_was_given_up_ends_its_pool_with_the_present_target(
    plan: bytes, fake: type[FakePool]
) -> None:
    fake.pause.clear()
    threads = [threading.Thread(target=judge, args=(plan,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not fake.made or not fake.made[0].busy:
        time.sleep(0.01)
    asyncio.run(deputy.release("1"))
    assert not fake.made[0].closed
    fake.pause.set()
    for thread in threads:
        thread.join()
    assert [pool.closed for pool in fake.made] == [True]
    judge(plan, "2")
    assert [pool.closed for pool in fake.made] == [True, False]


def test_a_pool_that_nobody_asks_any_more_is_ended(
    plan: bytes, fake: type[FakePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deputy, "IDLE", 0.3)
    judge(plan)
    time.sleep(0.1)
    judge(plan)
    assert [pool.closed for pool in fake.made] == [False]
    deadline = time.monotonic() + 10
    while not fake.made[0].closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert judge(plan).report.status is Status.CHECKED, "the run itself is not over"
    assert [pool.closed for pool in fake.made] == [True, False]


def test_other_builds_of_one_version_leave_nothing_to_keep(
    plan: bytes, fake: type[FakePool]
) -> None:
    own = Surroundings.here()
    there = dataclasses.replace(own, torch=f"{own.torch.partition('+')[0]}+another")
    outcome = judge(plan, asked=wire.dump(there))
    assert (outcome.report.status, outcome.lasting) == (Status.CHECKED, False)


def test_a_server_that_cannot_be_started_fails_the_target(
    plan: bytes, fake: type[FakePool]
) -> None:
    fake.fails = ServerError("no torch", killed=False)
    assert why(judge(plan)).endswith(": no torch")
    assert fake.made[0].closed


def test_a_bug_of_ours_leaves_no_pool_behind(plan: bytes, fake: type[FakePool]) -> None:
    fake.fails = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        judge(plan)
    assert fake.made[0].closed


def test_what_has_no_file_is_not_compared() -> None:
    told = Plan(Settings("/nowhere"))
    assert deputy._other_file(told, TargetSpec("m:A", module="m", qualname="A"), None) is None
    assert isinstance(deputy._other_file(told, TargetSpec("a.py", path="a.py"), "ab"), NotChecked)
