"""The command's side: keep a server, hand it targets, and outlive whatever becomes of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mha_lint.engine.unchecked import not_checked
from mha_lint.model import wire
from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.runner import linux
from mha_lint.runner.claims import refusal
from mha_lint.runner.endings import ended_early, out_of_time
from mha_lint.runner.frames import ClosedError, receive, send
from mha_lint.runner.jobs import GRACE, End, Ended, Outcome, Plan, Ready, Start
from mha_lint.runner.preload import preloadable

WORTH = 3
"""Targets to come, above which a package is imported for all of them."""
SILENCE = 15.0
"""Seconds behind a worker's last moment after which its server is given up."""
PATIENCE = 3.0
"""Seconds that a server has to end."""


class ServerError(RuntimeError):
    """The server could not be started: what it printed last; ``killed``: a signal ended it."""

    def __init__(self, why: str, *, killed: bool = False) -> None:
        """Say why."""
        super().__init__(why)
        self.killed = killed


class Pool:
    """A server and up to ``jobs`` workers at a time."""

    def __init__(self, plan: Plan, *, jobs: int = 1) -> None:
        """Start the server; it imports torch while the caller goes on."""
        self._plan = plan
        self._jobs = max(1, jobs)
        self._scratch = Path(tempfile.mkdtemp(prefix="mha-lint-"))
        self._started = 0
        self._server: _Server | None = None
        self._start()

    def __enter__(self) -> Pool:
        """Return the pool, which `close` ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all that the pool started."""
        self.close()

    def cuda(self) -> bool:
        """Return whether the machine has a CUDA device.

        Raises:
            ServerError: the server could not be started.
        """
        return self._ready().cuda

    def run(
        self,
        specs: Sequence[TargetSpec],
        starting: Callable[[TargetSpec], object] | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcome of each of `specs` with its number, in the order in which they end.

        What ends because another target killed the server, or signalled everything it could, is
        judged once more, alone.

        Raises:
            ServerError: the server could not be started.
        """
        waiting = deque(enumerate(specs))
        doubtful: deque[tuple[int, TargetSpec]] = deque()
        running: dict[int, TargetSpec] = {}
        retried: set[int] = set()
        packages = _Packages()
        while waiting or running or doubtful:
            alone = not waiting and not running
            queue, most = (doubtful, 1) if alone else (waiting, self._jobs)
            while queue and len(running) < most:
                if running and packages.due(len(queue)):
                    break  # it waits until nobody runs
                number, spec = queue.popleft()
                if starting is not None:
                    starting(spec)
                running[number] = spec
                if not self._hand_over(Start(number, spec, len(queue), packages.take(len(queue)))):
                    break
            try:
                ended, body = self._next()
            except ClosedError:
                lost = sorted(running.items())
                running.clear()
                packages = _Packages(used=False)
                self._restart()
                for number, spec in lost:
                    if number in retried:
                        yield number, Outcome(not_checked(_SERVER_LOST, spec))
                    else:
                        retried.add(number)
                        doubtful.append((number, spec))
                continue
            spec = running.pop(ended.number)
            if ended.number not in retried and self._from_outside(ended):
                retried.add(ended.number)
                doubtful.append((ended.number, spec))
                continue
            outcome = self._outcome(spec, ended, body)
            packages.note(outcome.imported)
            yield ended.number, dataclasses.replace(outcome, imported=())

    def _from_outside(self, ended: Ended) -> bool:
        """Return whether another process can have brought this end about.

        Where all targets see each other, any signal may be another target's.
        """
        if ended.end is not End.LOST or ended.code >= 0:
            return False
        return ended.code in _FROM_OUTSIDE or "processes" not in self._ready().confined

    def _outcome(self, spec: TargetSpec, ended: Ended, body: bytes) -> Outcome:
        """Return what the worker wrote, or why it wrote nothing, with the time that it took."""
        outcome = self._written(spec, ended, body)
        report = dataclasses.replace(outcome.report, seconds=ended.seconds)
        return dataclasses.replace(outcome, report=report)

    def _written(self, spec: TargetSpec, ended: Ended, body: bytes) -> Outcome:
        if ended.end is End.TIME:
            return _failed(out_of_time(self._plan.settings, ended), spec)
        if ended.end is not End.DONE:
            return _failed(ended_early(ended, self._plan.limits), spec)
        try:
            outcome = wire.load(Outcome, body)
            if outcome.report.target != spec.text:
                raise wire.WireError("it is about another target")
            if why := refusal(outcome.report):
                raise wire.WireError(why)
        except wire.WireError as error:
            return _failed(NotChecked(f"its process sent no valid report: {error}"), spec)
        return outcome

    def _hand_over(self, job: Start) -> bool:
        self._ready()
        assert self._server is not None
        try:
            send(self._server.stream, wire.dump(job))
        except ClosedError:
            return False
        return True

    def _next(self) -> tuple[Ended, bytes]:
        """Return how the next worker ended, and its report.

        Raises:
            ClosedError: the server has ended, or does not answer.
        """
        assert self._server is not None
        stream = self._server.stream
        longest = self._plan.settings.timeout + GRACE + SILENCE
        if not select.select([stream], [], [], longest)[0]:
            raise ClosedError
        ended = wire.load(Ended, receive(stream))
        return ended, receive(stream)

    def _ready(self) -> Ready:
        """Return what the server says of itself; one that was killed meanwhile is replaced, twice.

        Raises:
            ServerError: it could not be started.
        """
        for left in (2, 1, 0):
            server = self._server or self._start()
            try:
                return server.ready()
            except ServerError as error:
                if not error.killed or not left:
                    raise
                self._restart()
        raise AssertionError("the last turn returns or raises")

    def _start(self) -> _Server:
        self._started += 1
        folder = self._scratch / f"server{self._started}"
        folder.mkdir(parents=True)  # a server that ends takes an empty folder above with it
        self._server = _Server(self._plan, folder)
        return self._server

    def _restart(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None

    def close(self) -> None:
        """End all that the pool started and remove what it left."""
        if self._server is not None:
            self._server.close()
            self._server = None
        shutil.rmtree(self._scratch, ignore_errors=True)


class _Packages:
    """The packages that targets have imported, each to be imported in the server once.

    Not where a server has been lost: it may have been one of them.
    """

    def __init__(self, *, used: bool = True) -> None:
        self._used = used
        self._known: set[str] = set()
        self._wanted: set[str] = set()

    def note(self, names: Sequence[str]) -> None:
        self._wanted |= set(preloadable(names)) - self._known

    def due(self, left: int) -> bool:
        """Return whether it pays: some are wanted, and enough targets are to come."""
        return self._used and bool(self._wanted) and left > WORTH

    def take(self, left: int) -> tuple[str, ...]:
        """Return the packages to import now."""
        if not self.due(left):
            return ()
        found = preloadable(self._wanted)
        self._known |= self._wanted
        self._wanted.clear()
        return found


_SERVER_LOST = NotChecked("it ended the process that watches over it, twice")
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT)
"""Ends that another process can have brought about."""


def _failed(failure: NotChecked, spec: TargetSpec) -> Outcome:
    return Outcome(not_checked(failure, spec))


class _Server:
    """One server process and the stream to it."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.stream, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._state: Ready | None = None
        root = str(Path(__file__).resolve().parents[2])
        code = (
            f"import sys; sys.path.append({root!r}); from mha_lint.runner.server import main; "
            f"main({theirs.fileno()}, {os.getpid()})"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **_ENVIRONMENT},
            )
        with contextlib.suppress(ClosedError):  # then it tells why when it is first asked
            send(self.stream, wire.dump(plan), wire.dump(str(folder)))

    def ready(self) -> Ready:
        """Wait until the server has imported torch.

        Raises:
            ServerError: it ended instead.
        """
        if self._state is None:
            try:
                self._state = wire.load(Ready, receive(self.stream))
            except ClosedError:
                code = self._process.wait()
                self._log.seek(0)
                said = self._log.read().decode(errors="replace").strip().splitlines()
                why = said[-1] if said else f"it ended with exit code {code}"
                killed = code < 0 or code & 0xFF > 0xFF - signal.NSIG  # its own or of one below
                raise ServerError(
                    f"the process that imports torch could not be started: {why}", killed=killed
                ) from None
        return self._state

    def close(self) -> None:
        """End the server and everything below it, also one that does not answer."""
        below = linux.descendants(self._process.pid, linux.parents())
        self.stream.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            linux.kill({self._process.pid, *below})
            self._process.wait()
        left = [
            p for p, parent in linux.parents().items() if p in below and parent in (1, os.getpid())
        ]
        linux.kill(left)
        self._log.close()


_ENVIRONMENT = {
    "PYTORCH_JIT": "0",
    # One thread each: the same sums in the same order, and no threads that a fork would lose.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Of each thread, glibc would take 64 MiB of addresses, which are limited.
    "MALLOC_ARENA_MAX": "2",
}
