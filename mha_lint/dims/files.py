"""What is opened: files alone, and of JSON whatever Python can hold, in names that can be printed."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from mha_lint.dims.data import SourceError
from mha_lint.model.printable import printable


def require_file(path: Path) -> int:
    """Return the size of the file at `path`; reading a pipe or a device might never end.

    Raises:
        SourceError: it is no file, or cannot be looked at.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise SourceError(f"{path}: no such file or folder") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{path}: no regular file, but a folder, pipe, socket or device")
    return found.st_size


def read_json(path: Path, largest: int) -> Any:
    """Return what the JSON file at `path` holds; its keys are made printable.

    Raises:
        SourceError: no JSON, or larger than `largest` bytes.
    """
    try:
        if require_file(path) > largest:
            raise SourceError(f"{path}: larger than {largest} bytes: no config file")
        return json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_object)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        why = str(error).split("\n")[0][:120] or type(error).__name__
        if isinstance(error, RecursionError):
            why = "nested too deeply"
        raise SourceError(f"{path}: no JSON ({why})") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {printable(key): value for key, value in pairs}
