"""What users, files and file names say, as a message can show it: in one line, and not too long."""

from __future__ import annotations

import reprlib

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 3


def printable(text: str) -> str:
    """Return `text` with everything escaped that cannot be printed, line breaks included."""
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


def shown(value: object) -> str:
    """Return the start of a value's repr: it may be as long, as deep or as large as one likes."""
    try:
        return _REPR.repr(value)
    except ValueError:  # Python prints no number of thousands of digits
        return "a number of thousands of digits"
