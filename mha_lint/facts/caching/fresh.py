"""The subject's module made anew: never called, so that nothing is left in it from a call."""

from __future__ import annotations

import copy
from typing import Any

from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.subject import Subject


def fresh_module(subject: Subject) -> Any:
    """Return a module that was not called yet; a copy of the called one where it cannot be made."""
    maker = subject.maker
    if isinstance(maker, FileMaker):
        try:
            return maker.build(subject.build)
        except StageError:
            pass
    try:
        return copy.deepcopy(subject.module)
    except Exception:  # whatever user classes raise
        return subject.module
