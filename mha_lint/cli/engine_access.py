"""What the command line has its targets judged by: processes of their own, or this one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from mha_lint.cli.output import say, stdout_kept
from mha_lint.engine.load import load_engine as load_engine
from mha_lint.model.settings import Running


@contextlib.contextmanager
def engine_for(running: Running) -> Iterator[Any]:
    """Yield what judges targets, as ``check(specs, settings, progress)`` or ``inspect(...)``.

    Without isolation that imports torch into this process, and what user code prints goes to stderr.
    """
    if running.isolation and hasattr(os, "fork"):
        from mha_lint.runner.run import Runner

        yield Runner(running)
        return
    if running.isolation:
        say("this system cannot fork: user code runs in mha-lint's own process, without isolation")
    with stdout_kept():
        yield load_engine()
