"""Look at what a path names; one that cannot be looked at (too long, forbidden) names nothing."""

from __future__ import annotations

from pathlib import Path


def is_file(path: Path) -> bool:
    """Tell whether `path` is a regular file, or a link to one."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Tell whether `path` is a folder, or a link to one."""
    try:
        return path.is_dir()
    except OSError:
        return False


def why_no_file(path: Path, shown: str) -> str:
    """Return why `path`, which messages call `shown`, is neither a file nor a folder."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return f"no such file: {shown}"
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}"
    return f"{shown} is no regular file, but a pipe, socket or device"
