"""Lint and numerically check multi-head attention written in PyTorch."""

from __future__ import annotations

__version__ = "0.1.0"
