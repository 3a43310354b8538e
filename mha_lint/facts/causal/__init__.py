"""Which later positions reach earlier ones: patterns of masks, ways around them, their offset."""

from __future__ import annotations
