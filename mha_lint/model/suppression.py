"""What became of the suppression comments of one file."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class SuppressionUse:
    """One comment and those of its ``codes`` that hide no finding of the run (``unused``).

    Only what could be told is unused: the rules were run, and everything in the file was judged.
    ``covers``: the words for what the comment covers, "this line", "the class" or "the file".
    """

    span: Span
    codes: tuple[str, ...]
    unused: tuple[str, ...]
    covers: str = "this line"
