"""Lint and numerically check multi-head attention written in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mha_lint.api import Report as Report
    from mha_lint.api import check as check

__version__ = "0.1.0"
__all__ = ["Report", "check"]


def __getattr__(name: str) -> Any:
    """Import what Python code uses when it asks for it: the command line does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mha_lint import api

    return getattr(api, name)
