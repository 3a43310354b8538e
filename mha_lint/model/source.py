"""Places in the user's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of source: 1-based lines and columns, ends exclusive (as in INTERFACE: column 19
    to 48 covers 29 characters).

    ``cell``: the cell of a notebook that the lines are counted in, its place among all cells from 1;
    0 outside notebooks, and in a notebook until it is reported, when all cells are one text.
    """

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    cell: int = 0

    @property
    def place(self) -> str:
        """Return the path, and the cell of a notebook: ``book.ipynb:cell 3``."""
        return f"{self.path}:cell {self.cell}" if self.cell else self.path

    def __str__(self) -> str:
        """Return ``path:line:column``, in a notebook ``path:cell 3:line:column``."""
        return f"{self.place}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the user stack of a recorded operation (torch's own frames are left out)."""

    span: Span
    function: str
