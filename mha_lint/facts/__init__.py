"""Derive the facts of one site."""

from __future__ import annotations

from mha_lint import sites

__all__ = ["sites"]
