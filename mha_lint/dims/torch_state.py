"""Names and shapes of a file that ``torch.save`` wrote: the only module of `dims` that needs torch.

Nothing but plain tensors is ever unpickled (``weights_only=True``), and where the file allows it no
data is read.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mha_lint.dims.data import SourceError, Tensor
from mha_lint.dims.files import require_file
from mha_lint.model.printable import printable

NESTED = (
    "state_dict", "model_state_dict", "model", "module", "net", "weights", "params", "model_state",
)  # fmt: skip
"""Under these keys training scripts save the model's state beside the optimiser's."""

SIZED = b"bytearray"
"""The one name that torch lets a pickle call and that takes memory by a number alone."""


def read_state(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors by name, and a remark on where they lay ("" for none).

    Raises:
        SourceError: the file holds something else than tensors, or is none of torch's.
    """
    _require_stored(path, require_file(path))
    _require_plain(path)
    loaded = _load(path)
    where: list[str] = []
    while isinstance(loaded, Mapping):
        here = dict(_tensors(loaded))
        key = next((k for k in NESTED if isinstance(loaded.get(k), Mapping)), None)
        if key is None or len(where) > 3 or _looks_like_a_model(here):
            remark = f"under {'.'.join(where)!r}" if where else ""
            return here, remark
        where.append(key)
        loaded = loaded[key]
    raise SourceError(f"{path}: holds a {type(loaded).__name__}, no state_dict")


def _looks_like_a_model(tensors: dict[str, Tensor]) -> bool:
    return any(len(t.shape) >= 2 for t in tensors.values())


def _tensors(state: Mapping[object, object]) -> Iterator[tuple[str, Tensor]]:
    import torch

    for name, value in state.items():
        if isinstance(name, str) and isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            name = printable(name)
            yield name, Tensor(name, tuple(value.shape), dtype)


def _require_stored(path: Path, size: int) -> None:
    """Refuse an archive whose parts would grow when they are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = [info for info in archive.infolist() if "/code/" not in info.filename]
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return  # no archive, or a broken one: torch tells
    if any(p.compress_type != zipfile.ZIP_STORED or p.file_size > size for p in parts):
        raise SourceError(f"{path}: refused: its parts are compressed, those of torch.save are not")


def _require_plain(path: Path) -> None:
    """Refuse a pickle that names ``bytearray``, which is as long as it says and in no state_dict."""
    named = False
    with contextlib.suppress(OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                pickles = [i for i in archive.infolist() if i.filename.endswith(".pkl")]
                named = any(SIZED in archive.read(info) for info in pickles)
        else:
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held,
            ):
                named = held.find(SIZED) >= 0
    if named:
        raise SourceError(f"{path}: refused: it holds more than tensors, and nothing else is read")


class _Clipped(io.BufferedReader):
    """A file of which no more is asked for than is left: a pickle may claim any length."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        super().__init__(io.FileIO(path))
        self._size = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes."""
        left = max(self._size - self.tell(), 0)
        return super().read(left if size is None or size < 0 else min(size, left))


def _load(path: Path) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        problem: Exception | None = None
        for mapped in (True, False):
            try:
                with contextlib.ExitStack() as stack:
                    file = path if mapped else stack.enter_context(_Clipped(path))
                    return torch.load(file, map_location="meta", weights_only=True, mmap=mapped)
            except OSError as error:
                reason = error.strerror or str(error)
                raise SourceError(f"{path}: cannot be read ({reason})") from error
            except Exception as error:  # torch raises many kinds on damaged files
                problem = error
                if not (mapped and "mmap" in str(error)):
                    break  # only files of the old format are tried again, without mapping
    text = str(problem)
    if "TorchScript" in text or "torchscript" in text:
        why = "a TorchScript archive, whose code would have to be loaded"
    elif "weights" in text.lower() and "unpickl" in text.lower():
        why = "it holds more than tensors, and nothing else is unpickled (weights_only)"
    else:
        why = f"not a file of torch.save ({text.splitlines()[0][:120] if text else type(problem).__name__})"
    raise SourceError(f"{path}: refused: {why}") from problem
