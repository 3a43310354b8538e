"""What must be set before torch is imported, so that a recording sees all of a user's code.

This module imports nothing of torch, and must be called before anything does.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping


def prepare_environment(variables: MutableMapping[str, str] | None = None) -> None:
    """Set the variables that torch reads on import, in `variables` (default: this process).

    ``PYTORCH_JIT=0`` leaves scripted functions and modules plain Python, which records as such.
    Where the user has set one already, it stays.
    """
    target: MutableMapping[str, str] = os.environ if variables is None else variables
    target.setdefault("PYTORCH_JIT", "0")
