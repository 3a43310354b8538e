"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file at once: who reads it, or ends us meanwhile, finds the old or the new one.

    What is no plain file (a pipe, /dev/stdout), or lies where no other can be made, is written to as it
    is; a link stays a link.

    Raises:
        OSError: it cannot be written.
    """
    real = path.resolve()
    if real.exists() and not (real.is_file() and os.access(real.parent, os.W_OK)):
        real.write_bytes(content)
        return
    beside = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        if real.exists():
            beside.chmod(real.stat().st_mode)
        beside.replace(real)
    finally:
        beside.unlink(missing_ok=True)
