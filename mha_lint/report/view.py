"""What a reporter may know of where its text will be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """The place that a report is rendered for; the defaults are those of a plain file.

    ``cwd``: the folder that relative paths of the report start from. ``unicode``: whether the
    place can show more than ASCII.
    """

    cwd: str
    width: int = 100
    color: bool = False
    unicode: bool = True
    verbose: bool = False
    quiet: bool = False
