"""The command's side: keep a server, hand it targets, and outlive whatever becomes of it."""

from __future__ import annotations

import contextlib
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
from mha_lint.runner.endings import ended_early, out_of_time
from mha_lint.runner.frames import ClosedError, receive, send
from mha_lint.runner.jobs import GRACE, End, Ended, Outcome, Plan, Ready, Start

PATIENCE = 3.0
"""Seconds behind a worker's last moment after which its server is given up."""


class ServerError(RuntimeError):
    """The server could not be started: what it printed last."""


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
        while waiting or running or doubtful:
            alone = not waiting and not running
            queue, most = (doubtful, 1) if alone else (waiting, self._jobs)
            while queue and len(running) < most:
                number, spec = queue.popleft()
                if starting is not None:
                    starting(spec)
                running[number] = spec
                if not self._hand_over(Start(number, spec, len(queue))):
                    break
            try:
                ended, body = self._next()
            except ClosedError:
                lost = sorted(running.items())
                running.clear()
                self._restart()
                for number, spec in lost:
                    if number in retried:
                        yield number, Outcome(not_checked(_SERVER_LOST, spec))
                    else:
                        retried.add(number)
                        doubtful.append((number, spec))
                continue
            spec = running.pop(ended.number)
            if (
                ended.end is End.LOST
                and ended.code in _FROM_OUTSIDE
                and ended.number not in retried
            ):
                retried.add(ended.number)
                doubtful.append((ended.number, spec))
                continue
            yield ended.number, self._outcome(spec, ended, body)

    def _outcome(self, spec: TargetSpec, ended: Ended, body: bytes) -> Outcome:
        """Return what the worker wrote, or why it wrote nothing."""
        if ended.end is End.TIME:
            return _failed(out_of_time(self._plan.settings, ended), spec)
        if ended.end is not End.DONE:
            return _failed(ended_early(ended, self._plan.limits), spec)
        try:
            outcome = wire.load(Outcome, body)
            if outcome.report.target != spec.text:
                raise wire.WireError("it is about another target")
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
        longest = self._plan.settings.timeout + GRACE + PATIENCE
        if not select.select([stream], [], [], longest)[0]:
            raise ClosedError
        ended = wire.load(Ended, receive(stream))
        return ended, receive(stream)

    def _ready(self) -> Ready:
        if self._server is None:
            self._start()
        assert self._server is not None
        return self._server.ready()

    def _start(self) -> None:
        self._started += 1
        folder = self._scratch / f"server{self._started}"
        folder.mkdir()
        self._server = _Server(self._plan, folder)

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
                self._process.wait()
                self._log.seek(0)
                said = self._log.read().decode(errors="replace").strip().splitlines()
                why = said[-1] if said else f"it ended with exit code {self._process.returncode}"
                raise ServerError(
                    f"the process that imports torch could not be started: {why}"
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
}


def run_all(pool: Pool, specs: Sequence[TargetSpec]) -> list[Outcome]:
    """Return the outcomes of all `specs`, in their order."""
    found = dict(pool.run(specs))
    return [found[number] for number in range(len(specs))]
