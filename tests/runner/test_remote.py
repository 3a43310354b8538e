"""Runs on a cluster of two workers on this machine, and what becomes of one that is not there."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mha_lint.model import wire
from mha_lint.model.report import Status, TargetReport
from mha_lint.model.settings import Settings, UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.runner import linux, remote
from mha_lint.runner.jobs import Outcome, Plan
from tests.runner.attention import attention

ROOT = Path(__file__).resolve().parents[2]
PLAN = Plan(Settings("/work"))
SPEC = TargetSpec("a.py::A", "a.py")


@pytest.mark.parametrize(
    "url",
    ["dask://host", "dask://:8786", "ray://host:1", "dask:host:1", "dask://host:1/x", "host:1",
     "dask://host:99999", "dask://host:port", "dask://[::1:8786", "dask://me@host:1", "dask://"],
)  # fmt: skip
def test_only_a_host_and_a_port_are_an_address(url: str) -> None:
    with pytest.raises(UsageError, match=rf"^--executor {re.escape(url)}: is not of the form"):
        remote.connect(url, PLAN)


def test_addresses() -> None:
    assert remote._address("dask://127.0.0.1:8786") == "tcp://127.0.0.1:8786"
    assert remote._address("dask://[::1]:8786") == "tcp://[::1]:8786"


def test_without_distributed_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r'pip install "mha-lint\[dask\]"'):
        remote.connect("dask://127.0.0.1:8786", PLAN)


@dataclass(frozen=True)
class Ended:
    """Stands in for a task that has ended."""

    status: str
    value: object = None

    def result(self, timeout: float) -> object:
        return self.value

    def exception(self) -> object:
        return self.value


class KilledWorker(Exception):
    pass


REPORT = TargetReport("a.py::A", "a.py", "A", 1, Status.CHECKED)


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended("finished", b"{"), "its dask worker sent no valid report: no JSON"),
        (Ended("finished", {"a": 1}), "its dask worker sent no valid report"),
        (
            Ended("finished", wire.dump(Outcome(TargetReport("b.py", "b.py", None, 1, Status.CHECKED)))),
            "its dask worker sent no valid report: it is about another target",
        ),
        (
            Ended("error", ModuleNotFoundError("No module named 'mha_lint'\nmore")),
            "no dask worker could judge it: ModuleNotFoundError: No module named 'mha_lint'",
        ),
        (Ended("error", KilledWorker("judge-1")), "each dask worker that was to judge it ended"),
        (Ended("cancelled"), "the connection to the dask scheduler was lost before it was judged"),
        (Ended("lost"), "the connection to the dask scheduler was lost before it was judged"),
    ],
)  # fmt: skip
def test_a_task_without_a_report_is_a_failed_target(ended: Ended, said: str) -> None:
    report = remote._outcome(ended, SPEC).report
    assert (report.target, report.status) == ("a.py::A", Status.FAILED)
    assert (report.reason or "").startswith(said)
    assert "\n" not in (report.reason or "")


def test_a_report_is_taken_as_it_is() -> None:
    outcome = Outcome(REPORT, lasting=True)
    assert remote._outcome(Ended("finished", wire.dump(outcome)), SPEC) == outcome


class Client:
    """Stands in for a connection whose workers come and go."""

    def __init__(self, workers: int, status: str = "running") -> None:
        self.workers, self.status = workers, status

    def nthreads(self) -> dict[int, int]:
        if self.workers < 0:
            raise OSError("no answer")
        return dict.fromkeys(range(self.workers), 1)


@pytest.mark.parametrize(
    ("client", "patience", "said"),
    [
        (Client(2), 0.0, None),
        (Client(0), 60.0, None),
        (Client(0), 0.0, "no dask worker was left to judge it"),
        (Client(-1), 0.0, "no dask worker was left to judge it"),
        (Client(2, "closed"), 60.0, "the connection to the dask scheduler was lost before it was"),
    ],
)
def test_a_cluster_that_is_left_is_not_waited_for(
    client: Client, patience: float, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LEFT_ALONE", patience)
    watch = remote._Watch(client)
    time.sleep(0.01)
    lost = watch.lost()
    assert (lost is None) == (said is None)
    assert lost is None or lost.reason.startswith(said or "")


def test_what_does_not_end_is_not_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        remote._within(0.05, lambda: time.sleep(1))
    with pytest.raises(KeyError):
        remote._within(5, lambda: os.environ["NOT_THERE_AT_ALL"])
    assert remote._within(5, lambda: 7) == 7


@pytest.fixture(scope="module")
def distributed() -> None:
    pytest.importorskip("distributed", reason="needs dask: pip install distributed")


def test_nobody_answers(distributed: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        code = (
            "from mha_lint.runner import remote; remote.PATIENCE = 0.5\n"
            "from mha_lint.cli.main import run\n"
            f"raise SystemExit(run(['check', '.', '--executor', 'dask://127.0.0.1:{port}']))"
        )
        done = python("-c", code, cwd=ROOT / "tests" / "runner")
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(
        rf"mha-lint: --executor dask://127\.0\.0\.1:{port}: no dask scheduler answers at "
        rf"tcp://127\.0\.0\.1:{port} \(.+\)\n",
        done.stderr,
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


class Workers:
    """A scheduler and two workers, all of them processes of this machine that nobody else sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "scheduler.json"
        common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(self._file)]
        self._common = common
        self.scheduler = self._start("dask_scheduler", *common, "--port", "0")
        self.workers = [self.start_worker() for _ in range(2)]
        deadline = time.monotonic() + 60
        while not self._file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        address = json.loads(self._file.read_text())["address"]
        self.url = address.replace("tcp://", "dask://")

    def start_worker(self) -> subprocess.Popen[bytes]:
        options = ["--no-nanny", "--nthreads", "2", "--local-directory", str(self._folder)]
        return self._start("dask_worker", *self._common, *options)

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{name}", *options],
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def processes(self) -> set[int]:
        """Return all that the workers have started and that still runs."""
        parents = linux.parents()
        return {p for worker in self.workers for p in linux.descendants(worker.pid, parents)}

    def close(self) -> None:
        """End all, the scheduler last, and see that nothing of theirs is left."""
        left = self.processes()
        lost = self.scheduler.poll() is not None
        for process in (*self.workers, self.scheduler):
            process.kill() if lost else process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        deadline = time.monotonic() + 10
        while left & set(linux.parents()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left & set(linux.parents())


@pytest.fixture(scope="module")
def cluster(distributed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    workers = Workers(tmp_path_factory.mktemp("dask"))
    try:
        yield workers
    finally:
        workers.close()


def check(cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from mha_lint.cli.main import run; code = run(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; raise SystemExit(code)"
    )
    arguments = ["check", "src", "--no-cache", "--format", "json", *options]
    return python("-c", code, *arguments, cwd=cwd)


def plain(text: str) -> str:
    return re.sub(r'"seconds": [0-9.]+', "", text)


def wait_until_none_is_left(cluster: Workers) -> None:
    deadline = time.monotonic() + 20
    while cluster.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not cluster.processes()


def test_a_cluster_finds_what_a_local_run_finds(cluster: Workers, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    texts = {
        "right.py": attention(),
        "wrong.py": attention(dim=-2),
        "ends.py": attention("os._exit(7)"),
        "raises.py": attention("raise RuntimeError('no weights')"),
        "prints.py": attention("print('{\"version\": 1}')", dim=-2),
        "broken.py": "class Attention(:\n    pass  # softmax\n",
        "hidden.py": attention(dim=-2).replace("@ v)", "@ v)  # mha-lint: ignore[MHA204]"),
    }
    for name, text in texts.items():
        (source / name).write_text(text)
    local, there = check(tmp_path), check(tmp_path, "--executor", cluster.url)
    assert (there.returncode, there.stderr) == (local.returncode, local.stderr) == (2, "")
    assert plain(there.stdout) == plain(local.stdout)
    statuses = {t["path"]: t["status"] for t in json.loads(there.stdout)["targets"]}
    assert statuses["src/wrong.py"] == "checked"
    assert statuses["src/ends.py"] == "failed"
    wait_until_none_is_left(cluster)


def slow(folder: Path, seconds: float) -> Path:
    """Make targets that note when they begin, and then take their time."""
    source = folder / "src"
    source.mkdir()
    begun = folder / "begun"
    for name in "abcd":
        first = f"open({str(begun)!r}, 'a').close(); time.sleep({seconds})"
        (source / f"{name}.py").write_text(attention(first, dim=-2))
    return begun


def started(folder: Path, begun: Path, url: str) -> subprocess.Popen[str]:
    """Start a run and return it when a target is being judged."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from mha_lint.cli.main import main; main()"
    )
    options = ["check", "src", "--no-cache", "--format", "json", "--executor", url]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *options],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, Any, str]:
    try:
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    return process.returncode, json.loads(out), err


def test_devices_are_those_of_the_workers(cluster: Workers, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(attention())
    local = check(tmp_path, "--device", "cuda")
    there = check(tmp_path, "--device", "cuda", "--executor", cluster.url)
    assert (there.returncode, there.stderr) == (local.returncode, local.stderr)
    wait_until_none_is_left(cluster)


def test_ctrl_c_leaves_a_report_and_no_process(cluster: Workers, tmp_path: Path) -> None:
    process = started(tmp_path, slow(tmp_path, 1), cluster.url)
    process.send_signal(signal.SIGINT)
    code, document, err = ended(process)
    assert (code, err) == (130, "")
    assert document["interrupted"] is True
    assert len(document["targets"]) == 4
    assert "the run was interrupted" in document["targets"][-1]["reason"]
    wait_until_none_is_left(cluster)


def test_a_worker_that_dies_costs_nothing_but_time(cluster: Workers, tmp_path: Path) -> None:
    process = started(tmp_path, slow(tmp_path, 0.5), cluster.url)
    died = cluster.workers.pop(0)
    died.kill()
    died.wait()
    cluster.workers.append(cluster.start_worker())
    code, document, err = ended(process)
    assert (code, err) == (1, "")
    found = {t["target"]: [f["code"] for f in t["findings"]] for t in document["targets"]}
    assert found == {f"src/{name}.py::Attention": ["MHA204"] for name in "abcd"}
    wait_until_none_is_left(cluster)


def test_a_scheduler_that_dies_fails_what_is_left(distributed: None, tmp_path: Path) -> None:
    own = tmp_path / "dask"
    own.mkdir()
    cluster = Workers(own)
    try:
        process = started(tmp_path, slow(tmp_path, 1), cluster.url)
        cluster.scheduler.kill()
        code, document, err = ended(process)
    finally:
        cluster.close()
    assert (code, err) == (2, "")
    reasons = {t["reason"] for t in document["targets"]}
    assert reasons == {"the connection to the dask scheduler was lost before it was judged"}
