"""Stand-ins for configs: one that is read by attribute and by item, one that has any key."""

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


class AnyKey(dict[Any, Any]):
    """A table that has one value under every key: ``types[field] == Kind.TOKEN``."""

    def __init__(self, value: Any) -> None:
        """Answer `value` to every question."""
        super().__init__()
        self.value = value

    def __missing__(self, key: Any) -> Any:
        """Return the one value."""
        return self.value

    def __contains__(self, key: object) -> bool:
        """Return True."""
        return True

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the one value."""
        return self.value
