"""Run a script or module in this process, as ``python`` runs it."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from mha_lint.cli.failure import Failure

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_MACHINERY = ("<frozen runpy>", "<frozen importlib._bootstrap>")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code, and whether it was interrupted."""

    code: int
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: compiled code, as ``__main__``."""

    code: CodeType | None
    module: ModuleType
    argv: tuple[str, ...]
    folder: str
    path: str

    def run(self, stopped: type[BaseException] | None = None) -> Ended:
        """Run it to its end, its threads included; nothing that it raises comes through."""
        with self._as_main(), _interruptible():
            ended = self._run()
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
        return ended

    def _run(self) -> Ended:
        try:
            if self.code is None:  # a folder or an archive with a __main__.py
                runpy.run_path(self.path, run_name="__main__")
            else:
                exec(self.code, vars(self.module))
        except SystemExit as error:
            return Ended(_exit_code(error.code))
        except BaseException as error:
            if type(error).__name__ == "StopRun" and type(error).__module__.startswith("mha_lint."):
                return Ended(0)
            told = without_us(error)
            sys.stdout.flush()
            sys.excepthook(type(told), told, told.__traceback__)
            return Ended(1, isinstance(error, KeyboardInterrupt))
        return Ended(0)

    @contextlib.contextmanager
    def _as_main(self) -> Iterator[None]:
        argv, path, main = sys.argv, list(sys.path), sys.modules.get("__main__")
        sys.argv = list(self.argv)
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0:1] = [self.folder]
        sys.modules["__main__"] = self.module
        try:
            yield
        finally:
            sys.argv, sys.path[:] = argv, path
            if main is not None:
                sys.modules["__main__"] = main


def script(path: str, arguments: tuple[str, ...]) -> Program:
    """Return the program that ``python path arguments`` runs.

    Raises:
        Failure: the file cannot be read.
    """
    whole = Path(path).absolute()
    if whole.is_dir() or whole.suffix in (".zip", ".pyz"):
        module = types.ModuleType("__main__")
        return Program(None, module, (path, *arguments), str(whole), str(whole))
    try:
        source = whole.read_bytes()
    except OSError as error:
        raise Failure(f"{path}: cannot be run ({error.strerror or error})") from error
    code = _compiled(source, str(whole))
    module = _main(str(whole), None, None)
    return Program(code, module, (path, *arguments), str(whole.resolve().parent), str(whole))


def module(name: str, arguments: tuple[str, ...]) -> Program:
    """Return the program that ``python -m name arguments`` runs.

    Raises:
        Failure: there is no such module.
    """
    before = list(sys.path)
    sys.path[0:1] = [str(Path.cwd())]
    find: Callable[[str], Any] = runpy._get_module_details  # type: ignore[attr-defined]
    try:
        _, spec, code = find(name)
    except ImportError as error:
        raise Failure(f"-m {name}: {error}") from error
    finally:
        sys.path[:] = before
    made = _main(spec.origin, spec, spec.loader)
    made.__package__ = spec.parent
    return Program(code, made, (spec.origin, *arguments), str(Path.cwd()), spec.origin)


def _compiled(source: bytes, path: str) -> CodeType:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)


def _main(path: str, spec: Any, loader: Any) -> ModuleType:
    made = types.ModuleType("__main__")
    if loader is None:
        from importlib.machinery import SourceFileLoader

        loader = SourceFileLoader("__main__", path)
    made.__file__, made.__spec__, made.__loader__, made.__package__ = path, spec, loader, None
    made.__dict__["__cached__"] = None
    vars(made).update(__annotations__={}, __builtins__=sys.modules["builtins"])
    made.__doc__ = None
    return made


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the program, as it does without us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _exit_code(code: object) -> int:
    """Return what the process exits with; text is printed, as Python does."""
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    sys.stdout.flush()
    sys.stderr.write(f"{code}\n")
    return 1


def without_us(error: BaseException) -> BaseException:
    """Take our own frames out of the tracebacks of `error` and of what led to it."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_us(one.__traceback__)
        pending += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions
    return error


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(trace)
        trace = trace.tb_next
    out = None
    for one in reversed(kept):
        out = TracebackType(out, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return out
