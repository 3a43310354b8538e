"""Run user code without letting it disturb us: output captured, global state restored, no network,
no unpickling, nothing that it raises escapes as more than data.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from mha_lint.targets.tables import Lists

OUTPUT_KEPT = 4000
"""Characters of the user's output that are kept for -v."""


class ForbiddenError(RuntimeError):
    """User code tried what a linter must not do for it (network, unpickling)."""


class _Sink(io.StringIO):
    """A text stream that keeps only its newest characters, so that endless printing is harmless."""

    def write(self, text: str, /) -> int:
        if self.tell() > 16 * OUTPUT_KEPT:
            tail = self.getvalue()[-OUTPUT_KEPT:]
            self.seek(0)
            self.truncate()
            super().write(tail)
        super().write(text)
        return len(text)

    def tail(self) -> str:
        return self.getvalue()[-OUTPUT_KEPT:]


@contextlib.contextmanager
def guarded() -> Iterator[_Sink]:
    """Run the block as user code; yield the stream that takes its output.

    Restored afterwards: ``sys.path`` and the like, the working directory, warning filters, random
    states, default dtype and device, grad mode, thread count, deterministic mode. ``sys.modules``
    is the business of `mha_lint.targets.load`.
    """
    sink = _Sink()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_kept_process_state())
        stack.enter_context(_kept_torch_state())
        stack.enter_context(contextlib.redirect_stdout(sink))
        stack.enter_context(contextlib.redirect_stderr(sink))
        for place, name, replacement in _replacements():
            stack.enter_context(_replaced(place, name, replacement))
        warnings.simplefilter("ignore")
        yield sink


@contextlib.contextmanager
def repeated() -> Iterator[None]:
    """Run the block as a call that the running program has made before, and will not miss.

    Only what the call changes is put back, and only what this thread prints is dropped: the
    program's other threads go on.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_kept_process_state())
        stack.enter_context(_kept_torch_state())
        for name in ("stdout", "stderr"):
            stack.enter_context(_replaced(sys, name, _SilentHere(getattr(sys, name))))
        stack.enter_context(_replaced(torch, "_check_with", _light_check(torch._check_with)))
        warnings.simplefilter("ignore")
        yield


class _SilentHere(io.TextIOBase):
    """A text stream that drops what one thread writes and passes on what the others do."""

    def __init__(self, behind: Any) -> None:
        super().__init__()
        self._behind = behind
        self._silent = threading.get_ident()

    def write(self, text: str, /) -> int:
        if threading.get_ident() == self._silent:
            return len(text)
        return int(self._behind.write(text))

    def flush(self) -> None:
        if threading.get_ident() != self._silent and self._behind is not None:
            self._behind.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


@contextlib.contextmanager
def _kept_process_state() -> Iterator[None]:
    lists = Lists.now()
    folder, environment = _working_directory(), dict(os.environ)
    recursion, seed = sys.getrecursionlimit(), random.getstate()
    excepthook, displayhook = sys.excepthook, sys.displayhook
    try:
        with warnings.catch_warnings():
            yield
    finally:
        lists.put_back()
        sys.excepthook, sys.displayhook = excepthook, displayhook
        sys.setrecursionlimit(recursion)
        random.setstate(seed)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        if folder is not None and _working_directory() != folder:
            os.chdir(folder)


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  (Path.cwd() resolves; this must restore the very string)
    except OSError:
        return None


@contextlib.contextmanager
def _kept_torch_state() -> Iterator[None]:
    dtype, threads, grad = (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )
    device = torch.get_default_device()
    deterministic, warn_only = deterministic_mode()
    anomaly = torch.is_anomaly_enabled()
    generator = torch.random.get_rng_state()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its first use imports sympy, 1 s
    numpy_random = sys.modules.get("numpy.random")  # not imported for this: it takes 5 ms
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    try:
        yield
    finally:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
        set_deterministic_mode(deterministic, warn_only=warn_only)
        torch.autograd.set_detect_anomaly(anomaly)
        torch.random.set_rng_state(generator)
        torch.backends.mha.set_fastpath_enabled(fast_path)
        if numpy_random is not None and numpy_state is not None:
            numpy_random.set_state(numpy_state)


def deterministic_mode() -> tuple[bool, bool]:
    """Return whether deterministic algorithms are on, and whether they only warn."""
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def set_deterministic_mode(on: bool, *, warn_only: bool) -> None:
    """Do as ``torch.use_deterministic_algorithms``, which imports the compiler (1.5 s) besides."""
    torch._C._set_deterministic_algorithms(on, warn_only=warn_only)


@contextlib.contextmanager
def _replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    own = name in vars(place)
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        if own:
            setattr(place, name, before)
        else:
            delattr(place, name)  # it was inherited


def _replacements() -> list[tuple[Any, str, Any]]:
    """Return the attributes that are replaced while user code runs."""

    def refuse(what: str) -> Callable[..., NoReturn]:
        def refused(*_args: object, **_kwargs: object) -> NoReturn:
            raise ForbiddenError(f"mha-lint does not {what} for the code that it checks")

        return refused

    network, unpickle = refuse("reach the network"), refuse("unpickle files")
    return [
        (socket.socket, "connect", network),
        (socket, "create_connection", network),
        (socket, "getaddrinfo", network),
        (pickle, "load", unpickle),
        (pickle, "loads", unpickle),
        (os, "_exit", refuse("end the process")),
        (torch, "load", _weights_only(torch.load)),
        (torch, "_check_with", _light_check(torch._check_with)),
        *_placements(),
    ]


def _placements() -> list[tuple[Any, str, Any]]:
    """Return ``.cuda()`` as something that does nothing, where there is no GPU."""
    if torch.cuda.is_available():
        return []

    def stay(here: Any, *_args: object, **_kwargs: object) -> Any:
        return here

    return [(torch.Tensor, "cuda", stay), (torch.nn.Module, "cuda", stay)]


def _light_check(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's own check without its import of sympy (1 s), which plain bools do not need.

    nn.MultiheadAttention makes one whenever it is given a key_padding_mask.
    """

    def light(kind: type[Exception], condition: Any, message: Callable[[], str]) -> None:
        if isinstance(condition, bool):
            if not condition:
                raise kind(message())
        else:
            check(kind, condition, message)

    return light


def _weights_only(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return `load` with ``weights_only=True``, whatever the caller says."""

    def safe_load(*args: Any, **kwargs: Any) -> Any:
        kwargs["weights_only"] = True
        kwargs.pop("pickle_module", None)
        return load(*args, **kwargs)

    return safe_load
