"""A whole run: plan the targets, take what is known, have the rest judged, put it all together."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from mha_lint.engine.joined import Rules, expanded, joined, rules_of
from mha_lint.engine.unchecked import not_checked
from mha_lint.model.report import NotChecked, RunReport, TargetReport
from mha_lint.model.settings import Running, Settings, UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.runner.cache import Cache, no_cache
from mha_lint.runner.jobs import Limits, Outcome, Plan
from mha_lint.runner.machine import usual_jobs, usual_memory
from mha_lint.runner.pool import Pool, ServerError
from mha_lint.runner.reads import digest
from mha_lint.runner.shards import part_of

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called as (done, total, name of the target that comes next)."""

_CHANGED = NotChecked(
    "its file changed while it was checked", "check it again when nothing writes to it"
)
_INTERRUPTED = NotChecked("the run was interrupted before it was checked")


class Executor(Protocol):
    """What judges targets, here or elsewhere."""

    def run(
        self, specs: Sequence[TargetSpec], starting: Callable[[TargetSpec], object] | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcome of each of `specs` with its number, in any order."""

    def cuda(self) -> bool:
        """Return whether targets can be measured on a CUDA device."""

    def __enter__(self) -> Self:
        """Return the executor."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all that it started."""


class Runner:
    """Judges targets in processes of their own; stands where `mha_lint.engine` would in this one."""

    def __init__(self, running: Running) -> None:
        """Take how the targets are to be run."""
        self._running = running

    def check(
        self,
        specs: Sequence[TargetSpec | NotChecked],
        settings: Settings,
        progress: Progress | None = None,
    ) -> RunReport:
        """Judge every target of `specs` and return what was found.

        Raises:
            UsageError: a rule, a device or an executor that is asked for is not there.
        """
        return self._run(specs, settings, progress, rules=True)

    def inspect(self, specs: Sequence[TargetSpec | NotChecked], settings: Settings) -> RunReport:
        """Return the sites of every target, with their sizes and costs, without judging them."""
        return self._run(specs, settings, None, rules=False)

    def _run(
        self,
        specs: Sequence[TargetSpec | NotChecked],
        settings: Settings,
        progress: Progress | None,
        *,
        rules: bool,
    ) -> RunReport:
        started = time.perf_counter()
        plan = Plan(settings, Limits(memory=self._running.memory or usual_memory()), rules)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_interruptible())
            # With "auto" a report also rests on which devices there are.
            kept = self._running.cache and rules and settings.device != "auto"
            cache = Cache.of(plan) if kept else no_cache()
            executor: Executor | None = None
            if cache.empty:  # then it can import torch meanwhile
                executor = stack.enter_context(self._executor(plan, specs))
            chosen = rules_of(settings) if rules else Rules()
            targets = expanded(specs, settings)
            if self._running.shard is not None:
                targets = part_of(targets, *self._running.shard)
            work = _Work(targets, settings, cache, progress)
            work.take_known()
            try:
                if work.left and executor is None:
                    executor = stack.enter_context(self._executor(plan, specs))
                if executor is not None and work.left:
                    if settings.device == "cuda" and not executor.cuda():
                        raise UsageError("--device cuda: this machine has no CUDA device")
                    work.have_done(executor)
            except ServerError as error:
                raise UsageError(str(error)) from None
            except KeyboardInterrupt:
                work.interrupted = True
        outcomes = work.outcomes()
        report = joined(
            [o.report for o in outcomes],
            [c for o in outcomes for c in o.crashes],
            chosen,
            settings,
            started=started,
            notes=work.notes(),
        )
        return dataclasses.replace(report, interrupted=work.interrupted, shard=self._running.shard)

    def _executor(self, plan: Plan, specs: Sequence[TargetSpec | NotChecked]) -> Executor:
        if self._running.executor is not None:
            from mha_lint.runner.remote import connect

            return connect(self._running.executor, plan)
        single = len(specs) == 1 and isinstance(specs[0], TargetSpec) and specs[0].stated
        jobs = self._running.jobs or (1 if single else usual_jobs())
        return Pool(plan, jobs=jobs)


class _Work:
    """The targets of a run and what became of each so far."""

    def __init__(
        self,
        targets: Sequence[TargetSpec | NotChecked],
        settings: Settings,
        cache: Cache,
        progress: Progress | None,
    ) -> None:
        self._targets = targets
        self._settings = settings
        self._cache = cache
        self._progress = progress
        self._found: dict[int, Outcome] = {}
        self._before: dict[str, str] = {}
        self.left: dict[int, TargetSpec] = {}
        self.interrupted = False

    def take_known(self) -> None:
        """Note what is known not to be checked, and what was judged before."""
        for number, one in enumerate(self._targets):
            if isinstance(one, NotChecked):
                self._found[number] = Outcome(not_checked(one, None))
                continue
            file = self._file(one)
            if file is not None and file not in self._before:
                self._before[file] = digest(file)
            known = self._cache.get(one, self._before.get(file or "", ""))
            if known is None:
                self.left[number] = one
            else:
                self._found[number] = known

    def have_done(self, executor: Executor) -> None:
        """Have `executor` judge what is left."""
        numbers = list(self.left)
        for index, outcome in executor.run(list(self.left.values()), self._starting):
            number = numbers[index]
            spec = self.left.pop(number)
            self._found[number] = outcome
            self._cache.put(spec, self._before.get(self._file(spec) or "", ""), outcome)
        if self._progress is not None:
            self._progress(len(self._targets), len(self._targets), "")

    def outcomes(self) -> list[Outcome]:
        """Return what became of each target, in their order."""
        self._found |= {n: Outcome(not_checked(_INTERRUPTED, s)) for n, s in self.left.items()}
        changed = {file for file, before in self._before.items() if digest(file) != before}
        return [
            self._changed(one, self._found[n])
            if isinstance(one, TargetSpec) and self._file(one) in changed
            else self._found[n]
            for n, one in enumerate(self._targets)
        ]

    def notes(self) -> list[str]:
        """Return what is to be said of the run as a whole."""
        if not self.interrupted:
            return []
        done = len(self._targets) - len(self.left)
        return [f"interrupted: {done} of {len(self._targets)} targets were checked"]

    @staticmethod
    def _changed(spec: TargetSpec, outcome: Outcome) -> Outcome:
        report: TargetReport = not_checked(_CHANGED, spec)
        return Outcome(dataclasses.replace(report, seconds=outcome.report.seconds))

    def _file(self, spec: TargetSpec) -> str | None:
        return None if spec.path is None else str(Path(self._settings.cwd, spec.path))

    def _starting(self, spec: TargetSpec) -> None:
        if self._progress is not None:
            self._progress(len(self._found), len(self._targets), spec.text)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the run with what is done; no user code runs here that could catch it."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
