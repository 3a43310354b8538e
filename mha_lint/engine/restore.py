"""Undo what user code did to the modules that we and the next target rely on."""

from __future__ import annotations

import builtins
import json
import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mha_lint.targets.tables import Lists, Modules

_MODULES: tuple[ModuleType, ...] = (
    torch, torch.nn, torch.nn.functional, torch.nn.init, builtins, json, math, os, random,
)  # fmt: skip
_CLASSES: tuple[type, ...] = (torch.Tensor, torch.nn.Module, torch.nn.Parameter)


@contextmanager
def restored(changed: list[str] | None = None) -> Iterator[None]:
    """Put torch's and the standard library's names, loaded modules, environment and cwd back.

    `changed`: takes the names of what had been put in the place of, or taken out of, modules.
    """
    found = changed if changed is not None else []
    names = [(m, dict(vars(m))) for m in _MODULES]
    classes = [(c, dict(vars(c))) for c in _CLASSES]
    loaded, lists = Modules.now(), Lists.now()
    environment, here = dict(os.environ), Path.cwd()
    try:
        yield
    finally:
        for module, before in names:
            found += [f"{module.__name__}.{n}" for n in _put_back(vars(module), before)]
        for cls, before in classes:
            for name, value in before.items():
                if vars(cls).get(name) is not value and not name.startswith("__"):
                    setattr(cls, name, value)
                    found.append(f"{cls.__module__}.{cls.__qualname__}.{name}")
        found += [name for name in loaded.put_back() if name not in found]
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        lists.put_back()
        try:
            os.chdir(here)
        except OSError:  # the folder that we were started in is gone: nothing to go back to
            return


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Set the names of `before` again; return those that had changed."""
    found = [name for name, value in before.items() if now.get(name) is not value]
    for name in found:
        now[name] = before[name]
    return found
