"""Targets judged by a dask cluster that runs already: ``--executor dask://HOST:PORT``.

Each target is one task. What is sent and what comes back is JSON, read as data and checked. On a
worker of the cluster user code runs as it does here, in processes of its own under the same limits.
The workers see the same files under the same paths, and have the same Python, torch and mha-lint:
both are checked for each target.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import queue
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar, cast
from urllib.parse import urlsplit

from mha_lint.engine.unchecked import not_checked
from mha_lint.model import wire
from mha_lint.model.report import NotChecked
from mha_lint.model.settings import UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.runner import deputy
from mha_lint.runner.jobs import Outcome, Plan
from mha_lint.runner.reads import digest

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")

SCHEME = "dask"
PATIENCE = 5.0
"""Seconds in which the scheduler must answer and have a worker."""
LEFT_ALONE = 30.0
"""Seconds without any worker after which what is left is given up."""
_TICK = 1.0
_DATA = ["dask", "msgpack"]
"""Forms in which an answer is read; another one that dask knows, pickle, could run code here."""


def connect(url: str, plan: Plan) -> Cluster:
    """Return the executor at `url`.

    Raises:
        UsageError: no such engine is known, or it does not answer.
    """
    address = _address(url)
    try:
        importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(f'--executor {url}: pip install "mha-lint[dask]" ({error})') from None
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":  # what matters is told by us
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    client = _client(url, address)
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()
        raise UsageError(
            f"--executor {url}: the scheduler has no workers; start some: dask worker {address}"
        ) from None
    except BaseException:
        client.close()
        raise
    return Cluster(client, plan)


def _client(url: str, address: str) -> Client:
    """Return a client of the scheduler at `address`."""
    import distributed

    def make() -> Client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those versions that matter are compared
            return distributed.Client(
                address,
                timeout=PATIENCE,
                set_as_default=False,
                name="mha-lint",
                deserializers=_DATA,
            )

    try:  # where something else than a scheduler listens, it waits for ever
        return _within(PATIENCE + _TICK, make)
    except Exception as error:
        raise UsageError(
            f"--executor {url}: no dask scheduler answers at {address} ({_first_line(error)})"
        ) from None


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns; it is left to itself where that takes longer.

    Raises:
        TimeoutError: it takes longer.
    """
    done: queue.SimpleQueue[tuple[T, None] | tuple[None, Exception]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return cast("T", result)


def _address(url: str) -> str:
    """Return where the scheduler listens."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        only = url == f"{SCHEME}://{parts.netloc}" and "@" not in parts.netloc
    except ValueError:  # a port that is no number, brackets that do not close
        host, port, only = None, None, False
    if not host or not port or not only:
        raise UsageError(f"--executor {url}: is not of the form {SCHEME}://HOST:PORT")
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


class Cluster:
    """A connection to a scheduler, for the targets of one plan."""

    def __init__(self, client: Client, plan: Plan) -> None:
        """Take the connection over; `__exit__` ends it."""
        self._client = client
        self._plan = plan
        self._told = wire.dump(plan)
        self._name = uuid.uuid4().hex
        self._open: dict[Future, int] = {}
        self._digests: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Return the executor."""
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel what is not judged yet, have the workers end what they keep, and leave."""
        if self._client.status == "closed":
            return
        with contextlib.suppress(Exception):  # where they are gone, there is nothing to do
            _within(PATIENCE, self._leave)
        with contextlib.suppress(Exception):
            _within(PATIENCE, self._client.close)

    def _leave(self) -> None:
        if self._open:
            self._client.cancel(list(self._open), force=True)
        self._client.run(deputy.release, self._name, on_error="ignore")

    def cuda(self) -> bool:
        """Return whether every worker's machine has a CUDA device.

        Raises:
            UsageError: one of them could not tell.
        """
        asked = [
            self._client.submit(deputy.cuda, self._name, self._told, workers=[worker], pure=False)
            for worker in self._client.nthreads()
        ]
        try:
            return bool(asked) and all(self._client.gather(asked))
        except Exception as error:
            why = f"a dask worker could not tell whether it has a CUDA device: {_first_line(error)}"
            raise UsageError(why) from None

    def run(
        self, specs: Sequence[TargetSpec], starting: Callable[[TargetSpec], object] | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcome of each of `specs` with its number, in the order in which they end.

        The scheduler hands a target whose worker died to another one; one that takes several with it
        fails.
        """
        here = wire.dump(deputy.Surroundings.here())
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        for number, spec in enumerate(specs):
            future = self._client.submit(
                deputy.judge,
                self._name,
                self._told,
                wire.dump(spec),
                self._digest(spec),
                here,
                pure=False,
            )
            self._open[future] = number
            future.add_done_callback(ended.put)
        watch = _Watch(self._client)
        while self._open:
            try:
                future = ended.get(timeout=_TICK)
            except queue.Empty:
                why = watch.lost()
                if why is not None:
                    for number in self._give_up():
                        yield number, Outcome(not_checked(why, specs[number]))
                continue
            if future in self._open:
                number = self._open.pop(future)
                watch.seen()
                if starting is not None:
                    starting(specs[number])
                yield number, _outcome(future, specs[number])

    def _digest(self, spec: TargetSpec) -> str | None:
        if spec.path is None:
            return None
        path = str(Path(self._plan.settings.cwd, spec.path))
        if path not in self._digests:
            self._digests[path] = digest(path)
        return self._digests[path]

    def _give_up(self) -> list[int]:
        """Return the numbers of the targets that are still open, and wait for them no more."""
        numbers = sorted(self._open.values())
        self._open.clear()
        return numbers


class _Watch:
    """Looks whether anybody is still there to judge."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last = time.monotonic()

    def seen(self) -> None:
        """Note that an outcome has come."""
        self._last = time.monotonic()

    def lost(self) -> NotChecked | None:
        """Return why nothing more will come, or None while it may."""
        if self._client.status == "closed":
            return _SCHEDULER_LOST
        if self._workers():
            self.seen()
            return None
        return _NO_WORKERS if time.monotonic() - self._last > LEFT_ALONE else None

    def _workers(self) -> bool:
        try:
            return bool(_within(PATIENCE, self._client.nthreads))
        except Exception:  # of a scheduler that does not answer, whatever it is
            return False


_SCHEDULER_LOST = NotChecked("the connection to the dask scheduler was lost before it was judged")
_NO_WORKERS = NotChecked("no dask worker was left to judge it")
_WORKERS_DIED = NotChecked(
    "each dask worker that was to judge it ended", "see the logs of the workers"
)


def _outcome(future: Future, spec: TargetSpec) -> Outcome:
    """Return what a worker found, or why there is nothing."""
    if future.status == "finished":
        try:
            outcome = wire.load(Outcome, future.result(timeout=LEFT_ALONE))
            if outcome.report.target != spec.text:
                raise wire.WireError("it is about another target")
        except (wire.WireError, TypeError, OSError) as error:
            why = f"its dask worker sent no valid report: {error}"
            return Outcome(not_checked(NotChecked(why), spec))
        return outcome
    if future.status != "error":
        return Outcome(not_checked(_SCHEDULER_LOST, spec))
    failure = future.exception()
    if type(failure).__name__ == "KilledWorker":
        return Outcome(not_checked(_WORKERS_DIED, spec))
    hint = "the workers need the same environment as this process, with mha-lint in it"
    why = f"no dask worker could judge it: {type(failure).__name__}: {_first_line(failure)}"
    return Outcome(not_checked(NotChecked(why, hint), spec))


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
