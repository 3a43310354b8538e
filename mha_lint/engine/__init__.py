"""Take targets through the stages: the only place that knows their order.

What judges imports torch, and so is loaded when it is first asked for: `mha_lint.engine.joined`,
which plans a run and closes it, needs none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mha_lint.engine.live import check_calls as check_calls
    from mha_lint.engine.run import Progress as Progress
    from mha_lint.engine.run import check as check
    from mha_lint.engine.run import inspect as inspect
    from mha_lint.engine.watched import check_watched as check_watched
    from mha_lint.engine.watched import watcher as watcher

_HOMES = {
    "check_calls": "live",
    "Progress": "run",
    "check": "run",
    "inspect": "run",
    "check_watched": "watched",
    "watcher": "watched",
}


def __getattr__(name: str) -> Any:
    """Return a name of the interface, from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
