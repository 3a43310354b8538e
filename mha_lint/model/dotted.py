"""Names of a great many parts, which parsers take the square of their number of bytes for."""

from __future__ import annotations

import re

_NAME = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_SPACE = r"(?:[ \t]|\\\r?\n)*"
_DEEP = re.compile(rf"(?<![\w.-])(?:{_NAME}{_SPACE}\.{_SPACE}){{500}}")


def is_deep(text: str) -> bool:
    """Return whether `text`, Python or TOML, holds a dotted name of more than 500 parts.

    An import of that length takes a hundred times its size in Python's parser, a key in tomllib's; at
    ten times that length, a thousand times.
    """
    return _DEEP.search(text) is not None
