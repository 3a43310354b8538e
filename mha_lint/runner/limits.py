"""What a worker takes on itself before any user code runs in it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mha_lint.runner.jobs import Limits
from mha_lint.runner.machine import cores

SPARE_TASKS = 512
"""Tasks that the user's other programs may add to those counted, before forks are refused here."""


def homes(folder: Path) -> Mapping[str, str]:
    """Return the variables that say where a program may keep things, all below `folder`."""
    below = {
        "HOME": "",
        "USERPROFILE": "",
        "TMPDIR": "tmp",
        "TEMP": "tmp",
        "TMP": "tmp",
        "XDG_CACHE_HOME": ".cache",
        "XDG_CONFIG_HOME": ".config",
        "XDG_DATA_HOME": ".local/share",
        "XDG_STATE_HOME": ".local/state",
        "XDG_RUNTIME_DIR": ".run",
    }
    return {name: str(folder / place) if place else str(folder) for name, place in below.items()}


def limit_resources(limits: Limits, timeout: float, *, tasks: int, memory: bool) -> None:
    """Set the limits of this process that the kernel keeps; those it has already stay if stricter.

    They cannot be raised again.

    `tasks`: those of the user that run already; `memory`: whether to limit addresses (a GPU's
    driver maps more of them than there is memory).
    """
    if sys.platform == "win32":
        return
    import resource

    def at_most(kind: int, value: int, beyond: int = 0) -> None:
        soft, hard = resource.getrlimit(kind)
        best = min(v for v in (value, soft, hard) if v >= 0)
        last = best + beyond if hard < 0 else min(best + beyond, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (best, last))

    at_most(resource.RLIMIT_CORE, 0)
    at_most(resource.RLIMIT_FSIZE, limits.file_size)
    at_most(resource.RLIMIT_CPU, int(timeout * min(cores(), 8)) + 10, beyond=5)
    if os.getuid() != 0:  # the system does not count root's
        at_most(resource.RLIMIT_NPROC, tasks + limits.processes + SPARE_TASKS)
    if memory:
        at_most(resource.RLIMIT_AS, addresses(resource) + limits.memory)


def addresses(resource: Any) -> int:
    """Return the bytes of addresses that this process holds."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * int(resource.getpagesize())
    except OSError:
        return 64 << 30


def tasks_of_user() -> int:
    """Return how many tasks (threads count each) the user runs; 0 where ``/proc`` does not say."""
    own, count = os.getuid() if sys.platform != "win32" else 0, 0
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if entry.stat().st_uid == own:
                        count += len(os.listdir(f"{entry.path}/task"))  # noqa: PTH208 - in a loop
    return count
