"""Open what the user named: configs, checkpoints, an index of shards, or a folder of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mha_lint.dims.config import read_config
from mha_lint.dims.data import Checkpoint, Source, SourceError, Tensor
from mha_lint.dims.files import require_file
from mha_lint.dims.safetensors_header import read_header
from mha_lint.model.printable import printable
from mha_lint.targets.paths import is_file, is_folder

TORCH = (".pt", ".pth", ".bin", ".ckpt")
_CONFIGS = ("config.json", "params.json")
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}(\.\w+)")
_SLICE = re.compile(r"consolidated\.\d+\.(pth|safetensors)")


@dataclass(slots=True)
class Opened:
    """All that was read. ``unread``: what could not be, in sentences."""

    configs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def open_sources(paths: Sequence[Path]) -> Opened:
    """Read everything that `paths` name.

    Raises:
        SourceError: a named file cannot be read, or a folder holds nothing to read.
    """
    opened = Opened()
    for path in paths:
        if is_folder(path):
            _folder(path, opened)
        else:
            require_file(path)
            _file(path, opened)
    return opened


def _file(path: Path, opened: Opened) -> None:
    if path.name.endswith(".index.json"):
        _index(path, opened)
    elif path.suffix == ".safetensors" or path.suffix in TORCH:
        _tensors(path.name, [path], opened)
    elif path.suffix == ".json":
        config = read_config(path)
        if "weight_map" in config:
            _index(path, opened)
            return
        opened.configs.append((str(path), config))
        opened.sources.append(Source(str(path), "config", f"{len(config)} keys"))
    else:
        known = ", ".join((".json", ".safetensors", *TORCH))
        raise SourceError(f"{path}: unknown kind of file ({known} and folders are read)")


def _index(path: Path, opened: Opened) -> None:
    """Read the headers of the shards that an index names, as far as they lie beside it."""
    names = read_config(path).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        raise SourceError(f"{path}: no index of shards: it has no weight_map of file names")
    shards = sorted(set(names.values()))
    strange = [s for s in shards if Path(s).name != s]
    if strange:
        raise SourceError(f"{path}: names a shard outside its own folder: {strange[0]!r}")
    here = [path.parent / s for s in shards if is_file(path.parent / s)]
    missing = [s for s in shards if not is_file(path.parent / s)]
    opened.sources.append(
        Source(str(path), "index", f"{len(names)} tensors in {len(shards)} shards")
    )
    if missing:
        lost = sum(1 for s in names.values() if s in set(missing))
        opened.notes.append(
            f"{path.name}: {len(missing)} of {len(shards)} shards are not here ({_few(missing)}): the "
            f"shapes of {lost} of {len(names)} tensors are unknown"
        )
    if here:
        _tensors(path.name, here, opened, skip_failures=True)


def _tensors(
    label: str, files: Iterable[Path], opened: Opened, *, skip_failures: bool = False
) -> None:
    """Read files that together make one checkpoint."""
    tensors: dict[str, Tensor] = {}
    twice = slices = 1
    for path in files:
        try:
            found, remark = _read(path)
        except SourceError as error:
            if not skip_failures:
                raise
            opened.notes.append(str(error))
            opened.sources.append(Source(str(path), "checkpoint", "not read"))
            continue
        shared = sum(1 for name in found if name in tensors)
        if shared and _SLICE.fullmatch(path.name):
            slices += 1
        elif shared:
            twice += shared
        tensors.update({n: t for n, t in found.items() if n not in tensors})
        detail = f"{len(found)} tensors" + (f"; {remark}" if remark else "")
        opened.sources.append(Source(str(path), "checkpoint", detail))
    if twice > 1:
        opened.notes.append(f"{label}: {twice - 1} tensors stand in more than one file")
    if slices > 1:
        opened.notes.append(
            f"{label}: {slices} model-parallel slices: rows of q, k, v and columns of the output "
            f"projection are counted {slices} times"
        )
    if tensors:
        opened.checkpoints.append(Checkpoint(label, tensors, slices))


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    if path.suffix == ".safetensors":
        return read_header(path)
    from mha_lint.dims.torch_state import read_state

    return read_state(path)


def _folder(folder: Path, opened: Opened) -> None:
    """Read a folder's config and its checkpoint; of the same weights in two formats, the safe one."""
    try:
        names = sorted(p.name for p in folder.iterdir() if is_file(p))
    except OSError as error:
        raise SourceError(f"{folder}: cannot be read ({error.strerror or error})") from error
    config = next((n for n in _CONFIGS if n in names), None)
    if config is not None:
        _file(folder / config, opened)
    chosen = _choose(names)
    if config is None and not chosen:
        raise SourceError(f"{folder}: holds no config.json, .safetensors or torch checkpoint")
    if chosen[:1] and chosen[0].endswith(".index.json"):
        _index(folder / chosen[0], opened)
    elif chosen:
        _tensors(f"{folder.name}/{chosen[0]}", [folder / n for n in chosen], opened)
    shards = {n for n in names if _SHARD.fullmatch(n)}
    others = [
        n for n in names if n.endswith((".safetensors", *TORCH)) and n not in {*chosen, *shards}
    ]
    if others:
        opened.notes.append(f"{folder.name}: not read as well: {_few(others)}")


def _choose(names: list[str]) -> list[str]:
    """Return the files of one checkpoint: an index, else its shards, else a single file."""
    for suffixes in ((".safetensors",), TORCH):
        ends = tuple(f"{s}.index.json" for s in suffixes)
        indices = [n for n in names if n.endswith(ends)]
        if indices:
            return indices[:1]
        files = [n for n in names if n.endswith(suffixes) and n not in _NO_MODEL]
        for kind in (_SHARD, _SLICE):
            parts = [n for n in files if kind.fullmatch(n)]
            if parts:
                stem = parts[0].split("-0")[0]
                return [n for n in parts if kind is _SLICE or n.startswith(stem)]
        if files:
            preferred = [n for n in files if n.startswith(("model", "pytorch_model"))]
            return (preferred or files)[:1]
    return []


_NO_MODEL = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt", "optimizer.bin"})


def _few(names: Sequence[str]) -> str:
    return printable(", ".join(names[:3])) + (
        f" and {len(names) - 3} more" if len(names) > 3 else ""
    )
