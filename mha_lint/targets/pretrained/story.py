"""What an error passed through: the lines and functions of the library's code, outermost first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import FrameType

DEEPEST = 6
"""Frames of the library that are looked at, from where the error is."""


def story(error: BaseException) -> str:
    """Return the error's message with the source lines that it passed through."""
    lines = [_line(frame, number) for frame, number in _frames(error)]
    return "\n".join([str(error), *lines])


def background(error: BaseException) -> str:
    """Return the code that led to the error: the innermost functions as far as they came, and
    where their objects' attributes that stand in the line were set."""
    told: list[str] = []
    for frame, number in list(_frames(error))[-3:]:
        lines, first = _source(frame)
        told += lines[: number - first + 1]
        told += _set_where(frame, _line(frame, number))
    return "\n".join(told)


def trail(error: BaseException) -> tuple[int, ...]:
    """Return the line numbers within the models' own code, outermost first: later is further."""
    files = ((f.f_code.co_filename, n) for f, n in _frames(error))
    return tuple(n for name, n in files if "models" in name)


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    found: list[tuple[FrameType, int]] = []
    step = error.__traceback__
    while step is not None:
        if "transformers" in step.tb_frame.f_code.co_filename:
            found.append((step.tb_frame, step.tb_lineno))
        step = step.tb_next
    wrappers = ("utils/generic.py", "utils/output_capturing.py")
    plain = [one for one in found if not one[0].f_code.co_filename.endswith(wrappers)]
    yield from plain[-DEEPEST:]


def _source(frame: FrameType) -> tuple[list[str], int]:
    try:
        return inspect.getsourcelines(frame.f_code)
    except (OSError, TypeError):
        return [], 0


def _line(frame: FrameType, number: int) -> str:
    lines, first = _source(frame)
    index = number - first
    return lines[index].strip() if 0 <= index < len(lines) else ""


def _set_where(frame: FrameType, line: str) -> list[str]:
    """Return the lines that set the attributes which stand in `line`."""
    owner = frame.f_locals.get("self")
    names = set(re.findall(r"self\.(\w+)", line))
    if owner is None or not names:
        return []
    try:
        lines = inspect.getsourcelines(type(owner))[0]
    except (OSError, TypeError):
        return []
    return [one for one in lines if (m := re.match(r"\s*self\.(\w+)\s*=", one)) and m[1] in names]
