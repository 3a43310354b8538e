"""Errors of user code that can be shown: what they say is user code as well, and may do anything."""

from __future__ import annotations

from contextlib import suppress

LONGEST = 4000
"""Letters of an error that are kept."""


def speakable(error: BaseException) -> BaseException:
    """Return `error` if it can be shown, else one of its name that can, raised at the same place.

    Too much is cut. An interrupt or an exit stays what it is.
    """
    if _plain(error):
        return error
    kind = type(error)
    builtin = next(k for k in kind.__mro__ if k.__module__ == "builtins")
    name = str(kind.__name__)
    text = _text(error)
    stand_in: BaseException = Exception(text)
    for base in (builtin, Exception):
        with suppress(BaseException):
            made = base if name == base.__name__ else type(name, (base,), {})
            stand_in = made(text)
            break
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    return stand_in.with_traceback(trace)


def _plain(error: BaseException) -> bool:
    kind = type(error)
    if kind.__getattribute__ is not BaseException.__getattribute__:
        return False
    try:
        text = str(error)
        repr(error)
        lines = error.args
    except BaseException:
        return False
    return type(text) is str and len(text) <= LONGEST and type(lines) is tuple


def _text(error: BaseException) -> str:
    with suppress(BaseException):
        text = str(error)
        if len(text) > LONGEST:
            return f"{text[:LONGEST]}..."
    return "what it says cannot be shown"
