"""The only door from the command line to torch: `check` and `inspect` pass it, no other command."""

from __future__ import annotations

import gc
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
            import torch  # noqa: F401 - imported here so that the filter holds

            from mha_lint import engine
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
    return engine
