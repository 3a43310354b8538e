"""Folders and notebooks as they should not be: pipes, devices, loops of links, wrong JSON."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mha_lint.targets.notebooks import read as notebooks
from mha_lint.targets.notebooks.targets import notebook_targets, replaced
from mha_lint.targets.resolve import expand
from mha_lint.targets.source import SourceError, read_source
from tests.fuzz.parsers_source import DEEP, JUNK, check_target, deep, fixtures, mutated, specs
from tests.fuzz.parsers_watch import one_line, pick, require

NAMES = (
    b"a.py", b"b.py", b"c.pyw", b"d.ipynb", b"config.json", b"pyproject.toml", b"-x.py", b".h.py",
    b"two words.py", b"line\nbreak.py", b"\xff\xfe.py", b"caf\xc3\xa9.py", b"\x1b[31m.py", b"__init__.py",
    b"x::y.py", b"sub", b"sub.py", b"build", b"%s{}.py", b"torch.py", b"n" * 250 + b".py", b"\\.py",
)  # fmt: skip
KINDS = ("file", "broken", "folder", "pipe", "socket", "loop", "up", "device", "nowhere", "empty")
ATTENTION = "import torch\nclass A(torch.nn.Module):\n def forward(self, x):\n  return torch.softmax(x @ x, -1) @ x\n"

entries = st.tuples(pick(NAMES), pick(KINDS))
trees = st.lists(st.lists(entries, min_size=1, max_size=3), min_size=1, max_size=6)
"""Paths below a folder, part by part, each with what stands there."""


def check_folder(tree: list[list[tuple[bytes, str]]], folder: Path) -> None:
    """Walk a folder, and name each thing in it."""
    paths = [_made(folder / "t", parts) for parts in tree]
    for text in ["t", ".", *(str(path.relative_to(folder)) for path in paths)]:
        check_target(text, folder)
        check_target(f"{text}::A", folder)


def _made(here: Path, parts: list[tuple[bytes, str]]) -> Path:
    here.mkdir(exist_ok=True)
    for name, _ in parts[:-1]:
        below = here / os.fsdecode(name)
        if os.path.lexists(below) and not below.is_dir():
            break
        below.mkdir(exist_ok=True)
        here = below
    name, kind = parts[-1]
    path = here / os.fsdecode(name)
    if os.path.lexists(path):
        return path
    match kind:
        case "file" | "broken" | "empty":
            text = {"file": ATTENTION, "broken": "class (", "empty": ""}[kind]
            path.write_text(text)
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            _socket(path)
        case _:
            targets = {
                "loop": path.name,
                "up": "..",
                "device": "/dev/zero",
                "nowhere": "nowhere.py",
            }
            path.symlink_to(targets[kind])
    return path


def _socket(path: Path) -> None:
    """Make a socket; its path must be short, so it is made elsewhere and moved here."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{folder}/s")
        Path(folder, "s").rename(path)


values: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | pick((0, 1, -1, 4, 2**70, 1e400, "", "x", "\ud800", "code", "python")),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(pick(("source", "cell_type", "name", "language", "x")), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
_cell = st.one_of(
    mutated(),
    st.lists(pick(JUNK), max_size=6).map("".join),
    pick(fixtures()),
    st.builds(deep, pick(sorted(DEEP)), pick((3, 150, 400, 900))),
    st.builds(deep, pick(("raised", "called", "sums")), pick((900, 1500, 2000))),
    pick(
        (
            "%%time\n" + ATTENTION,
            "%%writefile a.py\n" + ATTENTION,
            "%%bash\nls",
            ATTENTION + "(\n",
            "    " + ATTENTION.replace("\n", "\n    "),
            ATTENTION.replace("-1", "-2"),
        )
    ),
)


@st.composite
def books(draw: DrawFn) -> bytes:
    """Return a notebook, with some of its values replaced by others and some of its keys gone."""
    version = draw(pick((4, 4, 4, 3, 2, 1)))
    cells: list[dict[str, Any]] = []
    for text in draw(st.lists(_cell, max_size=4)):
        key = "source" if version > 3 else "input"
        source = text.splitlines(keepends=True) if draw(st.booleans()) else text
        cells.append({"cell_type": "code", key: source, "metadata": {}, "outputs": [{}]})
    metadata = {
        "kernelspec": {"language": "python", "name": "python3", "display_name": "x"},
        "language_info": {"name": "python"},
    }
    book: dict[str, Any] = {"nbformat": version, "nbformat_minor": 0, "metadata": metadata}
    book |= {"cells": cells} if version > 3 else {"worksheets": [{"cells": cells}]}
    for _ in range(draw(st.integers(0, 3))):
        _changed(draw, book)
    data = json.dumps(book).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(data)))
        data = draw(pick((data[:at], data[:at] + b"[" * 20000, b"\xef\xbb\xbf" + data)))
    return data


def _changed(draw: DrawFn, value: Any) -> None:
    """Replace or take out one value, somewhere inside."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw(pick(keys))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 2)) == 0:
            break
        value = inner
    if draw(st.booleans()):
        del value[key]
    else:
        value[key] = draw(values)


def check_notebook(data: bytes, folder: Path) -> None:
    """Read a notebook, and look for attention in it, in each version of each class."""
    file = folder / "book.ipynb"
    file.write_bytes(data)
    notebooks._read.cache_clear()
    try:
        source = read_source(str(file))
    except SourceError as error:
        one_line(error.reason)
        require(str(file) in error.reason, "a message without the file's name")
        return
    book = source.notebook
    assert book is not None
    (spec,) = specs("book.ipynb", folder)
    lines = source.text.count("\n") + 1
    for one in notebook_targets(spec, source, book):
        if (line := getattr(one, "line", None)) is not None:
            require(1 <= line <= lines and book.cell_of(line) >= 1, "a line outside the file")
    for broken in book.broken:
        one_line(str(broken))
        rows = next(cell.lines for cell in book.cells if cell.number == broken.cell)
        require(1 <= broken.line <= rows + 1, "a line outside the cell")
    for cell, old in replaced(source, book):
        require(old.line >= 1 and cell >= 1, "a line outside the file")
    first, second = (expand([spec], cwd=str(folder)) for _ in range(2))
    require(first == second, "two results for one file")
    check_target("book.ipynb::A@1", folder)
