"""Record one call of a module into a functional graph, and replay that graph with other values.

Importing the package alone does not import torch, so that `mha_lint.capture.environment` can run
first; the names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_lint.capture.capturing import record
    from mha_lint.capture.errors import CaptureError
    from mha_lint.capture.recording import Faithfulness, Recording
    from mha_lint.capture.redraw import random_inputs, random_parameters
    from mha_lint.capture.replay import Replay

__all__ = [
    "CaptureError",
    "Faithfulness",
    "Recording",
    "Replay",
    "random_inputs",
    "random_parameters",
    "record",
]

_HOMES = {
    "CaptureError": "errors",
    "Faithfulness": "recording",
    "Recording": "recording",
    "Replay": "replay",
    "random_inputs": "redraw",
    "random_parameters": "redraw",
    "record": "capturing",
}


def __getattr__(name: str) -> object:
    """Load one of the public names from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
