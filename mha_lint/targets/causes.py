"""What to do about an error whose cause lies outside the code: a package or a file that is not there."""

from __future__ import annotations

import traceback

from mha_lint.targets.infer.errors import is_user_file


def remedy(error: BaseException) -> str:
    """Return what removes the cause of `error`, "" where it lies in the code itself."""
    match error:
        case ImportError(name=str(name)) if name:
            package = name.partition(".")[0]
            return f"install {package}, or state a --build and --call that do without it"
        case FileNotFoundError(filename=str(name)) if name:
            where = "put it there" if name.startswith(("/", "~")) else _RELATIVE
            return f"{name} is missing: {where}, or state a --build that needs no file"
    return ""


_RELATIVE = "relative paths count from the folder in which mha-lint runs, so run it in another one"


def raised_at(error: BaseException, home: str = "") -> str:
    """Return the innermost line of the user's code that `error` passed, in words, "" for none."""
    lines = [
        f"it is raised at line {frame.lineno} of {frame.filename.rpartition('/')[2]}"
        for frame in traceback.extract_tb(error.__traceback__)
        if is_user_file(frame.filename, home)
    ]
    return lines[-1] if lines else ""
