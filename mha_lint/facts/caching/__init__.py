"""Decoding with a cache: how it is called, whether it agrees with the whole, what stays behind."""

from __future__ import annotations
