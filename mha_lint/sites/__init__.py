"""Find the attention sites of a captured graph."""

from __future__ import annotations

from mha_lint import capture

__all__ = ["capture"]
