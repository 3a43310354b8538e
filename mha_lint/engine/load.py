"""Import torch and what judges, the way that all of mha-lint does."""

from __future__ import annotations

import gc
import importlib
import os
import warnings
from types import ModuleType


def load_engine() -> ModuleType:
    """Prepare the process, import torch and return `mha_lint.engine`.

    torch reads ``PYTORCH_JIT`` once, while it is imported: scripted functions would bake constants
    into what we record. Without NumPy torch says on import that it found none; mha-lint needs
    none, so nobody need be told.

    What is imported stays to the end: the garbage collector does not run meanwhile, and need not look
    through it later.
    """
    os.environ["PYTORCH_JIT"] = "0"
    enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
            importlib.import_module("torch")
            for name in ("run", "live", "watched"):
                importlib.import_module(f"mha_lint.engine.{name}")
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
    return importlib.import_module("mha_lint.engine")
