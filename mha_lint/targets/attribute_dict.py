"""A config that code reads both ways: ``cfg.width`` and ``cfg["width"]``."""

from __future__ import annotations

from typing import Any


class AttributeDict(dict[str, Any]):
    """A config that is read by attribute and by item."""

    def __getattr__(self, name: str) -> Any:
        """Return the entry `name`."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"config has no entry {name!r}") from None
