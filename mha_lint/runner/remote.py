"""Targets judged by an engine that runs elsewhere."""

from __future__ import annotations

from typing import NoReturn

from mha_lint.model.settings import UsageError
from mha_lint.runner.jobs import Plan


def connect(url: str, plan: Plan) -> NoReturn:
    """Return the executor at `url`.

    Raises:
        UsageError: no such engine is known, or it does not answer.
    """
    raise UsageError(f"--executor {url}: not built yet")
