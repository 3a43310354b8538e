"""What a worker of a dask cluster does for a run elsewhere: judge one target, as a pool here would.

User code runs in the pool's processes, never in the worker's own. A worker keeps one pool, of the
run that asked last, and judges one target at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import platform
import threading
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.util import Finalize
from pathlib import Path

from mha_lint.engine.unchecked import not_checked
from mha_lint.model import wire
from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.runner.jobs import Outcome, Plan
from mha_lint.runner.pool import Pool, ServerError
from mha_lint.runner.reads import digest

IDLE = 120.0
"""Seconds without a target after which a pool is ended; the next target starts another."""
A_MOMENT = 0.5
"""Seconds that it takes to note how a target ended, and more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """What a report rests on beside the user's files."""

    mha_lint: str
    torch: str
    python: str
    machine: str

    @classmethod
    def here(cls) -> Surroundings:
        """Return those of this process."""
        return cls(
            _version("mha-lint"),
            _version("torch"),
            platform.python_version(),
            f"{platform.system()} {platform.machine()}",
        )


def judge(run: str, plan: bytes, spec: bytes, content: str | None, asked: bytes) -> bytes:
    """Return the outcome of one target of the run that is called `run`, as JSON.

    `content`: the digest of its file where it was asked for; `asked`: the `Surroundings` there.
    """
    target = wire.load(TargetSpec, spec)
    own, theirs = Surroundings.here(), wire.load(Surroundings, asked)
    why = _other_versions(own, theirs) or _other_file(wire.load(Plan, plan), target, content)
    if why is not None:
        return wire.dump(Outcome(not_checked(why, target)))
    outcome = _kept.judge(run, plan, target)
    return wire.dump(dataclasses.replace(outcome, lasting=outcome.lasting and own == theirs))


def cuda(run: str, plan: bytes) -> bool:
    """Return whether this machine has a CUDA device."""
    return _kept.cuda(run, plan)


async def release(run: str) -> None:
    """End the pool of `run`, at the latest when its present target is judged; judge no other."""
    await asyncio.to_thread(_kept.release, run)


class _Kept:
    """The pool of this process."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._pool: Pool | None = None
        self._run = ""
        self._over: set[str] = set()
        self._idle = threading.Timer(0, self._close)
        Finalize(self, self._close, exitpriority=10)

    def judge(self, run: str, plan: bytes, spec: TargetSpec) -> Outcome:
        with self._busy:
            if run in self._over:
                return Outcome(not_checked(_GIVEN_UP, spec))
            try:
                ((_, outcome),) = self._pool_of(run, plan).run([spec])
            except ServerError as error:
                self._close()
                return Outcome(not_checked(NotChecked(f"on {platform.node()}: {error}"), spec))
            except BaseException:
                self._close()
                raise
            if run in self._over:
                self._close()
            else:
                self._wait()
            return outcome

    def cuda(self, run: str, plan: bytes) -> bool:
        with self._busy:
            found = self._pool_of(run, plan).cuda()
            self._wait()
            return found

    def release(self, run: str) -> None:
        self._over.add(run)
        if self._busy.acquire(timeout=A_MOMENT):  # else a target is judged, and its end tells
            try:
                if run == self._run:
                    self._close()
            finally:
                self._busy.release()

    def _wait(self) -> None:
        """End the pool if no target comes for long: whoever asked may be gone without a word."""
        self._idle = threading.Timer(IDLE, self._rest)
        self._idle.daemon = True
        self._idle.start()

    def _rest(self) -> None:
        if self._busy.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._busy.release()

    def _pool_of(self, run: str, plan: bytes) -> Pool:
        self._idle.cancel()
        if self._pool is None or run != self._run:
            self._close()
            self._pool, self._run = Pool(wire.load(Plan, plan)), run
        return self._pool

    def _close(self) -> None:
        self._idle.cancel()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


_kept = _Kept()
_GIVEN_UP = NotChecked("the run was given up before it was judged")


def _other_versions(own: Surroundings, theirs: Surroundings) -> NotChecked | None:
    """Return why nothing can be judged here for a run there: the report would be another one."""
    for name, here, there in (
        ("mha-lint", own.mha_lint, theirs.mha_lint),
        ("torch", own.torch.partition("+")[0], theirs.torch.partition("+")[0]),
        ("Python", own.python.rpartition(".")[0], theirs.python.rpartition(".")[0]),
    ):
        if here != there:
            return NotChecked(
                f"the dask worker on {platform.node()} has {name} {here or 'not at all'}, and "
                f"where the run was started it is {there or 'missing'}",
                "start the workers in the same environment",
            )
    return None


def _other_file(plan: Plan, spec: TargetSpec, content: str | None) -> NotChecked | None:
    """Return why the target cannot be judged here: its file is not the one that was meant."""
    if spec.path is None or content is None:
        return None
    path = str(Path(plan.settings.cwd, spec.path))
    found = digest(path)
    if found == content:
        return None
    what = "has another content of" if found else "cannot read"
    return NotChecked(
        f"the dask worker on {platform.node()} {what} {path}",
        "the workers must see the same files under the same paths",
    )


def _version(distribution: str) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version(distribution)
    return ""
