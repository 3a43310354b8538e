"""The process that imports torch once, forks a worker for each target and watches over it.

It runs no user code. On Linux it is, wherever that is allowed, the first process of a namespace, and
each worker is the first of another one below: it sees no process but its own, and all that it started
ends with it. The server ends when the command that started it does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from mha_lint.model import wire
from mha_lint.model.target import TargetSpec
from mha_lint.runner import linux
from mha_lint.runner.frames import ClosedError, receive, send
from mha_lint.runner.jobs import GRACE, End, Ended, Plan, Ready, Start
from mha_lint.runner.preload import preload

NO_NAMESPACE = 77
"""Exit code: the namespace could not be made."""
TICK = 0.03
MANY = 4
"""Targets to come, above which it pays to warm up."""
SAID = 16_000
"""Bytes of a worker's output that are kept, the last ones."""
DRAINED = 100
"""Reads of what a worker wrote before its end; what it left behind may write for ever."""
LONGEST = 1 << 27
"""Bytes that a worker's report may have."""
PLAIN = "MHA_LINT_PLAIN_PROCESSES"
"""Set in the environment to do without a namespace, for tests of what is then left."""


def main(control: int, command: int) -> NoReturn:
    """Serve the command of process number `command` over the descriptor `control`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if PLAIN not in os.environ and sys.platform == "linux":
        code = _in_namespace(control, command)
        if code != NO_NAMESPACE:
            os._exit(code)
    linux.adopt_orphans()
    os._exit(_serve(control, (os.getpid(), command), namespace=False))


def _in_namespace(control: int, command: int) -> int:
    """Serve from within a namespace of processes; return the exit code, or NO_NAMESPACE."""
    outer = os.fork()
    if outer == 0:
        linux.die_with_parent()
        if not linux.own_processes():
            os._exit(NO_NAMESPACE)
        inner = os.fork()
        if inner == 0:
            linux.die_with_parent()
            if not linux.own_proc():
                os._exit(NO_NAMESPACE)
            os._exit(_serve(control, (), namespace=True))
        _, status = os.waitpid(inner, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    _, status = os.waitpid(outer, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _serve(control: int, spared: tuple[int, ...], *, namespace: bool) -> int:
    stream = socket.socket(fileno=control)
    try:
        plan = wire.load(Plan, receive(stream))
        scratch = Path(wire.load(str, receive(stream)))
    except ClosedError:
        return 0
    server = _Server(stream, plan, scratch, spared, namespace=namespace)
    try:
        server.prepare()
        linux.go_first()
        server.loop()
    except ClosedError:
        return 0
    finally:
        server.close()
    return 0


@dataclass(slots=True)
class _Worker:
    number: int
    process: int
    result: int
    output: int
    folder: Path
    began: float
    deadline: float
    apart: bool
    """Whether it is the first process of its own namespace."""
    body: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)
    end: End | None = None

    def complete(self) -> bool:
        """Return whether the whole report is there."""
        return len(self.body) >= 8 and len(self.body) - 8 >= int.from_bytes(self.body[:8], "big")

    def report(self) -> bytes:
        """Return the report; empty where it is not whole."""
        return bytes(self.body[8:]) if self.complete() else b""


class _Server:
    def __init__(
        self, stream: socket.socket, plan: Plan, scratch: Path, spared: tuple[int, ...],
        *, namespace: bool,
    ) -> None:  # fmt: skip
        self._stream = stream
        self._plan = plan
        self._scratch = scratch
        self._spared = spared
        self._namespace = namespace
        self._workers: dict[int, _Worker] = {}
        self._dying: dict[int, Path] = {}
        self._counted = 0.0
        self._usual = 0
        self._warm = False
        self._left = 0
        self._apart = linux.Apart() if namespace else None

    def prepare(self) -> None:
        """Import what judges, and tell the command."""
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the other check would break forks
        from mha_lint.engine.load import load_engine

        load_engine()
        import torch

        from mha_lint.engine.joined import rules_of
        from mha_lint.runner.limits import tasks_of_user
        from mha_lint.runner.worker import Setting

        torch.set_num_threads(1)  # the same sums in the same order, and nothing that a fork loses
        rules = rules_of(self._plan.settings).run if self._plan.rules else ()
        tasks = 0 if os.getuid() == 0 else tasks_of_user()
        confined = sys.platform == "linux"
        self._setting = Setting(self._plan, rules, self._spared, tasks, confined)
        words = ("processes",) if self._namespace else ()
        send(self._stream, wire.dump(Ready(torch.cuda.is_available(), words)))

    def loop(self) -> None:
        """Do as the command says until it closes the stream."""
        control = self._stream.fileno()
        while True:
            places = {control: None, **self._places()}
            wait = TICK if self._workers or self._dying else None
            ready, _, _ = select.select(list(places), [], [], wait)
            for place in ready:
                if place == control:
                    self._start(wire.load(Start, receive(self._stream)))
                else:
                    self._read(place)
            self._look_after()
            if not ready and not self._warm and self._left > MANY:
                with linux.going_along():
                    self._warm_up()

    def _places(self) -> dict[int, _Worker]:
        return {p: w for w in self._workers.values() for p in (w.result, w.output) if p >= 0}

    def _start(self, job: Start) -> None:
        from mha_lint.runner.worker import work

        self._left = job.left
        if job.preload:
            with linux.going_along():
                preload(job.preload)
        folder = self._scratch / f"home{job.number}"
        folder.mkdir()
        result, result_end = (end.detach() for end in socket.socketpair())  # not to be reopened
        output, output_end = os.pipe()
        process, apart = (os.fork(), False) if self._apart is None else self._apart.fork()
        if process == 0:
            work(job.spec, self._setting, folder, result_end, output_end, apart=apart)
        os.close(result_end)
        os.close(output_end)
        os.set_blocking(output, False)
        os.set_blocking(result, False)
        now = time.monotonic()
        self._workers[process] = _Worker(
            job.number, process, result, output, folder, now,
            now + self._plan.settings.timeout + GRACE, apart,
        )  # fmt: skip

    def _read(self, place: int) -> None:
        worker = self._places().get(place)
        if worker is None:
            return
        try:
            part = os.read(place, 1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:  # it ended with something of ours unread
            part = b""
        if place == worker.output:
            worker.said += part
            del worker.said[:-SAID]
            if not part:
                os.close(place)
                worker.output = -1
        elif part and len(worker.body) <= LONGEST:
            worker.body += part
        else:
            os.close(place)
            worker.result = -1

    def _look_after(self) -> None:
        now = time.monotonic()
        self._bury()
        for worker in list(self._workers.values()):
            if worker.complete():
                self._end(worker, End.DONE)
                continue
            process, status = os.waitpid(worker.process, os.WNOHANG)
            if process:
                while worker.result >= 0 and select.select([worker.result], [], [], 0)[0]:
                    self._read(worker.result)
                self._end(worker, End.DONE if worker.complete() else End.LOST, status)
            elif now > worker.deadline:
                self._end(worker, End.TIME)
        if self._workers and (self._more_tasks() or now - self._counted > 10 * TICK):
            self._counted = now
            self._count()
            self._usual = linux.tasks()

    def _more_tasks(self) -> bool:
        """Return whether the machine has so many more tasks than at the last count that we look."""
        return linux.tasks() > self._usual + self._plan.limits.processes // 2

    def _count(self) -> None:
        """End what has too many processes, and processes that nobody looks after any more."""
        found = linux.parents()
        for worker in list(self._workers.values()):
            if len(linux.descendants(worker.process, found)) > self._plan.limits.processes:
                self._end(worker, End.PROCESSES)
        seen = [worker.process for worker in self._workers.values() if not worker.apart]
        if seen:
            linux.kill(seen, signal.SIGCONT)  # another target may have stopped them
            self._leave_none_behind()

    def _leave_none_behind(self) -> None:
        """Kill and reap children that are no workers: their own parents ended, and left them to us."""
        own = os.getpid()
        for _ in range(100):
            strays = [
                process
                for process, parent in linux.parents().items()
                if parent == own and process not in self._workers and process not in self._dying
            ]
            linux.kill(strays)
            with contextlib.suppress(ChildProcessError):
                while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    if ended.si_pid in self._workers or ended.si_pid in self._dying:
                        break  # its own end is told elsewhere
                    os.waitpid(ended.si_pid, os.WNOHANG)
            if not strays:
                return

    def _end(self, worker: _Worker, end: End, status: int | None = None) -> None:
        """Kill what is left of the worker, tell the command, and clear up behind it."""
        if status is None or not worker.apart:
            self._kill(worker)
        if status is None and not worker.apart:
            _, status = os.waitpid(worker.process, 0)
        for _ in range(DRAINED):
            if worker.output < 0 or not select.select([worker.output], [], [], 0)[0]:
                break
            self._read(worker.output)
        del self._workers[worker.process]
        if not worker.apart:
            self._leave_none_behind()
        for place in (worker.result, worker.output):
            if place >= 0:
                os.close(place)
        said = worker.said.decode(errors="replace")
        body = worker.report()
        code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - worker.began
        ended = Ended(worker.number, end, code, len(body), said, seconds)
        send(self._stream, wire.dump(ended), body)
        if status is None:  # with all that it started this may take a while
            self._dying[worker.process] = worker.folder
        else:
            shutil.rmtree(worker.folder, ignore_errors=True)

    def _bury(self) -> None:
        """Clear up behind those that were killed and are now gone."""
        for process, folder in list(self._dying.items()):
            if os.waitpid(process, os.WNOHANG)[0]:
                del self._dying[process]
                shutil.rmtree(folder, ignore_errors=True)

    def _kill(self, worker: _Worker) -> None:
        """Kill a worker and all below it.

        With the first process of a namespace, all of it ends. Else what is stopped first cannot
        fork while we look, and what is faster than that ends with this process, where it can.
        """
        process = worker.process
        if worker.apart:
            linux.kill({process})
            return
        known: set[int] = set()
        for turn in range(1000):
            tree = {process, *linux.descendants(process, linux.parents())}
            linux.kill(tree - known, signal.SIGSTOP)
            if tree <= known:
                break
            known |= tree
            if turn > 10 and self._namespace:
                self._give_up(worker)
        linux.kill(known)
        with contextlib.suppress(OSError):
            os.killpg(process, signal.SIGKILL)

    def _give_up(self, worker: _Worker) -> NoReturn:
        """End at once, and with it everything in the namespace; the command starts another server."""
        told = Ended(worker.number, End.PROCESSES, -signal.SIGKILL, 0)
        with contextlib.suppress(ClosedError):
            send(self._stream, wire.dump(told), b"")
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(1)

    def _warm_up(self) -> None:
        """Judge a sample, once: what that imports and prepares, workers then find done."""
        self._warm = True
        from mha_lint.engine.one import judge_one, work_of

        file = Path(__file__).with_name("sample.py")
        hidden = "torch.tensor([[False] * 7, [False] * 5 + [True] * 2])"
        spec = TargetSpec(
            "sample",
            path=str(file),
            qualname="Sample",
            build="Sample(8, 2)",
            call=f"torch.randn(2, 7, 8), padding_mask={hidden}",
        )
        plain = dataclasses.replace(self._plan.settings, timeout=10.0, device="cpu", dtype=None)
        judge_one(spec, work_of(spec, plain), plain, self._setting.rules)
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """End all workers and remove what they left."""
        for worker in list(self._workers.values()):
            self._kill(worker)
        for _ in range(100):
            left = linux.descendants(os.getpid(), linux.parents())
            if not left:
                break
            linux.kill(left)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            time.sleep(0.01)
        shutil.rmtree(self._scratch, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: the command has another server already
            self._scratch.parent.rmdir()
