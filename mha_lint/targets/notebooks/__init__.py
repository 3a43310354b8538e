"""Notebooks and exported notebooks as Python source: one joined text, line for line."""

from __future__ import annotations
