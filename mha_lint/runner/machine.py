"""What this machine, or the container that we are in, lets us have."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/sys/fs/cgroup/memory.max")
_EACH = 1 << 30
"""Bytes that a target of the usual size and what is beside it take at most."""
_MOST = 8 << 30


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no container, or one without a limit
        return count


def memory() -> int:
    """Return the bytes of memory that there are."""
    try:
        count = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 2 * _MOST
    try:
        return min(count, int(_MEMORY.read_text()))
    except (OSError, ValueError):
        return count


def usual_jobs() -> int:
    """Return how many targets are judged at a time where nobody says."""
    return max(1, min(cores(), memory() // _EACH))


def usual_memory() -> int:
    """Return the bytes that one target may take where nobody says."""
    return min(_MOST, memory() // 2)
