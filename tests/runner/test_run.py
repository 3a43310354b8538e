"""Runs whose targets are judged by processes, by a cache, or by something that only says so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import Running, Settings, UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.runner import run as running
from mha_lint.runner.jobs import Outcome
from mha_lint.runner.run import Runner
from mha_lint.targets.resolve import parse_target
from tests.runner.attention import RIGHT, WRONG


class Judge:
    """Stands in for a pool: ``does`` is called for each target."""

    def __init__(self, does: Callable[[TargetSpec], object] = lambda _: None) -> None:
        self.does = does
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cuda(self) -> bool:
        return False

    def run(
        self, specs: Sequence[TargetSpec], starting: Any = None
    ) -> Iterator[tuple[int, Outcome]]:
        for number, spec in reversed(list(enumerate(specs))):
            self.asked.append(spec.text)
            self.does(spec)
            report = TargetReport(
                spec.text, spec.path or "", spec.qualname, spec.line, Status.CHECKED
            )
            yield number, Outcome(report, lasting=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text(RIGHT)
    return tmp_path


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made = Judge()
    monkeypatch.setattr(running, "Pool", lambda plan, jobs: made)
    return made


def checked(folder: Path, *names: str, how: Running = Running(), **settings: Any) -> RunReport:  # noqa: B008
    specs = [parse_target(name, cwd=str(folder)) for name in names or (".",)]
    return Runner(how).check(specs, Settings(cwd=str(folder), **settings))


def test_targets_stand_in_their_order_whichever_ends_first(folder: Path, judge: Judge) -> None:
    report = checked(folder)
    assert [t.target for t in report.targets] == [f"{n}.py::Attention" for n in "abc"]
    assert judge.asked == [f"{n}.py::Attention" for n in "cba"]


def test_the_second_run_asks_for_what_changed_only(folder: Path, judge: Judge) -> None:
    checked(folder)
    judge.asked.clear()
    (folder / "b.py").write_text(WRONG)
    report = checked(folder)
    assert judge.asked == ["b.py::Attention"]
    assert [t.target for t in report.targets] == [f"{n}.py::Attention" for n in "abc"]


def test_without_the_cache_all_are_asked_for_again(folder: Path, judge: Judge) -> None:
    checked(folder, how=Running(cache=False))
    checked(folder, how=Running(cache=False))
    assert len(judge.asked) == 6
    assert not (folder / ".mha_lint_cache").exists()


def test_what_rests_on_the_devices_there_are_is_not_kept(folder: Path, judge: Judge) -> None:
    checked(folder, device="auto")
    checked(folder, device="auto")
    assert len(judge.asked) == 6
    assert not (folder / ".mha_lint_cache").exists()


def test_a_file_that_changes_meanwhile_is_not_checked(folder: Path, judge: Judge) -> None:
    judge.does = lambda spec: (folder / "b.py").write_text(WRONG)
    report = checked(folder)
    assert [t.status for t in report.targets] == [Status.CHECKED, Status.FAILED, Status.CHECKED]
    assert report.targets[1].reason == "its file changed while it was checked"


def test_an_interrupted_run_tells_what_is_done(folder: Path, judge: Judge) -> None:
    def stop(spec: TargetSpec) -> None:
        if spec.path == "a.py":
            raise KeyboardInterrupt

    judge.does = stop
    report = checked(folder)
    assert [t.status for t in report.targets] == [Status.FAILED, Status.CHECKED, Status.CHECKED]
    assert report.targets[0].reason == "the run was interrupted before it was checked"
    assert report.notes == ("interrupted: 2 of 3 targets were checked",)
    assert report.interrupted
    judge.does = lambda spec: None
    judge.asked.clear()
    assert not checked(folder).interrupted
    assert judge.asked == ["a.py::Attention"]


def test_a_device_that_is_not_there_is_an_error(folder: Path, judge: Judge) -> None:
    with pytest.raises(UsageError, match="this machine has no CUDA device"):
        checked(folder, device="cuda")


def test_what_cannot_be_read_is_reported_in_its_place(folder: Path, judge: Judge) -> None:
    (folder / "b.py").write_text("class Attention(:\n")
    report = checked(folder, "a.py", "b.py", "c.py")
    assert [t.status for t in report.targets] == [Status.CHECKED, Status.FAILED, Status.CHECKED]


def test_progress_is_told(folder: Path, judge: Judge) -> None:
    told: list[tuple[int, int, str]] = []
    pool = judge.run

    def run(specs: Sequence[TargetSpec], starting: Any) -> Iterator[tuple[int, Outcome]]:
        for spec in specs:
            starting(spec)
        yield from pool(specs)

    judge.run = run  # type: ignore[assignment, method-assign]
    specs = [parse_target("a.py", cwd=str(folder))]
    Runner(Running()).check(specs, Settings(cwd=str(folder)), lambda *x: told.append(x))
    assert told == [(0, 1, "a.py::Attention"), (1, 1, "")]


def test_processes_find_what_this_one_does(folder: Path) -> None:
    from mha_lint.engine import check

    (folder / "b.py").write_text(WRONG)
    specs = [parse_target(".", cwd=str(folder))]
    settings = Settings(cwd=str(folder))
    alone = check(specs, settings)
    for how in (Running(jobs=2, cache=False), Running(jobs=2), Running()):
        report = Runner(how).check(specs, settings)
        assert [_timeless(t) for t in report.targets] == [_timeless(t) for t in alone.targets]
        assert (report.version, report.torch, report.notes) == (
            alone.version, alone.torch, alone.notes,
        )  # fmt: skip
    assert [[f.code for f in t.findings] for t in alone.targets] == [[], ["MHA204"], []]


def test_a_run_without_rules_shows_sites(folder: Path) -> None:
    specs: list[TargetSpec | NotChecked] = [parse_target("b.py::Attention", cwd=str(folder))]
    report = Runner(Running()).inspect(specs, Settings(cwd=str(folder)))
    (target,) = report.targets
    assert target.sites[0].num_heads == 1
    assert target.sites[0].cost is not None


def test_a_server_that_cannot_start_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = folder / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libtorch.so is missing')\n")
    monkeypatch.setenv("PYTHONPATH", f"{folder / 'broken'}:{':'.join(sys.path)}")
    with pytest.raises(UsageError, match=r"could not be started: .*libtorch.so is missing"):
        checked(folder, "a.py", how=Running(cache=False))


def _timeless(target: TargetReport) -> dict[str, Any]:
    from mha_lint.model.wire import to_plain

    plain: dict[str, Any] = to_plain(target)
    return plain | {"seconds": 0}
