"""Places in the user's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of source: 1-based lines and columns, ends exclusive (as in INTERFACE: column 19
    to 48 covers 29 characters)."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        """Return ``path:line:column``."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the user stack of a recorded operation (torch's own frames are left out)."""

    span: Span
    function: str
