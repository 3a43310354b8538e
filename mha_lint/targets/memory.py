"""Keep a guess from filling the machine: for its time the process may only grow by so much."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATM = Path("/proc/self/statm")
MEMINFO = Path("/proc/meminfo")

GROWTH = 2 << 30
"""Bytes that a guessed module and its call may take: a GPT-2 of default sizes takes 0.5e9."""

_WORDS = re.compile(r"can't allocate memory|could not create a (primitive|memory)|out of memory")


class MemoryLimitError(RuntimeError):
    """A guess would have taken more memory than one may."""


def available() -> int:
    """Return the bytes of memory that the machine has left; where it does not say, as many as a lot."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", MEMINFO.read_text())
    except OSError:
        found = None
    return int(found[1]) << 10 if found is not None else 1 << 40


def refused(error: BaseException) -> bool:
    """Tell whether `error` says that memory was refused."""
    return isinstance(error, MemoryError) or _WORDS.search(str(error)) is not None


@contextlib.contextmanager
def memory_limit(growth: int = GROWTH) -> Iterator[None]:
    """Let an allocation in the block fail where the process would grow by more than `growth` bytes.

    torch then raises RuntimeError and Python MemoryError. Where the system cannot limit that
    (anything but Linux), the block runs without a limit, and likewise where a GPU is in use: its
    driver maps more addresses than there is memory.
    """
    limits = _limits()
    if limits is None:
        yield
        return
    resource, (soft, hard) = limits
    held = _held(resource)
    wanted = held + growth
    if not held or 0 <= soft <= wanted or 0 <= hard <= wanted:
        yield  # the system is stricter already
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _limits() -> tuple[Any, tuple[int, int]] | None:
    if not sys.platform.startswith("linux") or not STATM.exists() or _gpu_in_use():
        return None
    resource: Any = importlib.import_module("resource")
    return resource, resource.getrlimit(resource.RLIMIT_AS)


def _held(resource: Any) -> int:
    """Return the bytes of addresses that this process holds; 0 where no file can be opened."""
    try:
        return int(STATM.read_text().split()[0]) * int(resource.getpagesize())
    except OSError:
        return 0


def _gpu_in_use() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
