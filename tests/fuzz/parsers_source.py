"""Sources as they should not be: mutated fixtures, odd encodings, deep nesting, IPython's lines."""

from __future__ import annotations

import ast
import dataclasses
import encodings.aliases
import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mha_lint.model.dotted import is_deep
from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.suppress import suppressions, useless_comments
from mha_lint.targets.notebooks.ipython import parses, plain_cell, plain_python, plain_script
from mha_lint.targets.project import Project
from mha_lint.targets.resolve import bound_names, expand, parse_target
from mha_lint.targets.scan import scan_source
from mha_lint.targets.source import SourceError, definition, read_source
from tests.fuzz.parsers_watch import ROOT, one_line, pick, require

JUNK = (
    "\x00", "\ufeff", "\r", "\r\n", "\x0c", "\x0b", "\x1c", "\x85", "\u2028", "ﬁ", "\U0001d538", "é",
    "\u0661", "²",
    "(", ")", "[", "]", "{", "}", "'''", '"""', "'", '"', "\\\n", "\\", "#", "\t", " ", "\n", "\n\n\n",
    "# mha-lint: ignore[MHA201]", "# mha-lint: ignore-file[ALL, x\x00, ]", "# mha-lint", "# coding: hex",
    "%time ", "!ls\n", "x?\n", "%%bash\n", "%%time\n", "a = !ls\n", "lambda: ", "yield ", "await ",
    "async ", ":=", "*", "**", "@", "->", "f'{x", "f'{x!r:>{y}}'", "0x", "1e999", "9" * 5000, "match x:\n",
    "case _:", "global x", "nonlocal x", "class C(C): pass\n", "class A(B): pass\n", "def forward(self): 0\n",
    "from . import *\n", "from .... import x\n", f"from {'m' * 300} import x\n", "import torch\n", "del ",
    "raise NotImplementedError(x)", "softmax", "self", "torch.nn.Module", "super().__init__()", "~", "...",
    "\ud800", "\U0010ffff", "except* E:", "type X = int\n", "if x:\n  pass\nelif ", "return", "@property\n",
)  # fmt: skip
CODINGS = (
    *sorted(set(encodings.aliases.aliases.values())),
    "undefined", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf8", "UTF-8-sig", "nope",
    "x" * 400, "é", "utf-8\x00", "latin_1-unix", "mbcs", "oem", "../../x",
)  # fmt: skip
_TOKEN = re.compile(r"\w+|[ \t]+|\n|[^\w\s]|\s")


@cache
def fixtures() -> tuple[str, ...]:
    """Return the texts that are mutated."""
    files = sorted((ROOT / "fixtures").rglob("*.py"))[::7]
    return tuple(f.read_text(encoding="utf-8") for f in files)


@st.composite
def mutated(draw: DrawFn, texts: SearchStrategy[str] | None = None) -> str:
    """Return a text with tokens and lines deleted, doubled, swapped and put in."""
    text = draw(pick(fixtures()) if texts is None else texts)
    for _ in range(draw(st.integers(1, 6))):
        by_line = draw(st.booleans())
        parts: list[str] = text.splitlines(keepends=True) if by_line else _TOKEN.findall(text)
        if not parts:
            break
        at = draw(st.integers(0, len(parts) - 1))
        match draw(pick(("delete", "double", "swap", "junk", "copy", "cut"))):
            case "delete":
                del parts[at : at + draw(st.integers(1, 5))]
            case "double":
                parts[at:at] = parts[at : at + draw(st.integers(1, 30))]
            case "swap":
                other = draw(st.integers(0, len(parts) - 1))
                parts[at], parts[other] = parts[other], parts[at]
            case "junk":
                parts.insert(at, draw(pick(JUNK) | st.text(max_size=8)))
            case "copy":
                parts[at] = parts[draw(st.integers(0, len(parts) - 1))]
            case _:
                del parts[at:]
        text = "".join(parts)
    return str(text)


@st.composite
def encoded(draw: DrawFn, texts: SearchStrategy[str]) -> bytes:
    """Return a text as bytes, in one of many encodings that it may or may not state."""
    text = draw(texts)
    if draw(st.integers(0, 3)) == 0:
        line = f"# -*- coding: {draw(pick(CODINGS))} -*-\n"
        text = "\n" * draw(st.integers(0, 2)) + line + text
    ends = draw(pick(("\n", "\n", "\n", "\r\n", "\r", "\x0c\n")))
    coding = draw(pick(("utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-7")))
    errors = "surrogatepass" if coding in ("utf-8", "utf-8-sig", "utf-16") else "replace"
    data = bytearray(text.replace("\n", ends).encode(coding, errors))
    for _ in range(draw(pick((0, 0, 0, 1, 3)))):
        data.insert(draw(st.integers(0, len(data))), draw(st.integers(0, 255)))
    return bytes(data)


def _chain(n: int) -> str:
    links = "".join(f"class C{i}(C{i - 1}): pass\n" for i in range(1, n))
    return f"from torch import nn\nclass C0(nn.Module):\n def forward(self, x): return x\n{links}"


def _diamonds(n: int) -> str:
    links = "".join(f"class C{i}(C{i - 1}, C{i - 1}): pass\n" for i in range(1, min(n, 2000)))
    return f"from torch import nn\nclass C0(nn.Module):\n def forward(self, x): return x\n{links}"


def _makers(n: int) -> str:
    made = "".join(
        f"class C{i}(nn.Module):\n def __init__(self): self.m = C{i + 1}()\n def forward(self, x): return x\n"
        for i in range(min(n, 1000))
    )
    last = f"class C{min(n, 1000)}(nn.Module):\n def __init__(self): self.m = nn.MultiheadAttention(8, 2)\n"
    return f"from torch import nn\n{made}{last} def forward(self, x): return self.m(x, x, x)\n"


_HEAD = "import torch\nclass A(torch.nn.Module):\n def forward(self, x):\n"
DEEP: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: f"x = {'(' * n}1{')' * n}\n",
    "open parentheses": lambda n: "(" * n,
    "lists": lambda n: f"x = {'[' * n}{']' * n}\n",
    "dicts": lambda n: f"x = {'{1:' * n}1{'}' * n}\n",
    "calls": lambda n: f"x = {'f(' * n}1{')' * n}\n",
    "called": lambda n: f"{_HEAD}  return x{'.softmax()' * n}\n",
    "sums": lambda n: f"{_HEAD}  return x{' + x' * n}\n",
    "contracted": lambda n: f"{_HEAD}  return torch.softmax(x{' @ x' * n}, -1) @ x\n",
    "signs": lambda n: f"x = {'-' * n}1\n",
    "nots": lambda n: f"x = {'not ' * n}1\n",
    "powers": lambda n: f"x = 1{'**1' * n}\n",
    "attributes": lambda n: f"{_HEAD}  return x{'.a' * n}\n",
    "subscripts": lambda n: f"x = y{'[0]' * n}\n",
    "lambdas": lambda n: f"x = {'lambda: ' * n}1\n",
    "conditions": lambda n: f"x = {'1 if x else ' * n}1\n",
    "comparisons": lambda n: f"x = {'1 < ' * n}1\n",
    "raised": lambda n: f"{_HEAD}  raise NotImplementedError(x{' + x' * n})\n",
    "blocks": lambda n: "".join(f"{' ' * i}if x:\n" for i in range(n)) + " " * n + "pass\n",
    "elifs": lambda n: f"if x:\n class A: pass\n{'elif x: pass' + chr(10)}" * 1 + "elif x: pass\n" * n,
    "classes": lambda n: "".join(f"{' ' * i}class A:\n" for i in range(n)) + " " * n + "pass\n",
    "functions": lambda n: "".join(f"{' ' * i}def f(x):\n" for i in range(n)) + " " * n + "pass\n",
    "f-strings": lambda n: "f'{" * n + "1" + "}'" * n,
    "decorators": lambda n: "@f\n" * n + "def f(): pass\n",
    "assigned": lambda n: f"{_HEAD}  {'x = ' * n}torch.softmax(x @ x, -1) @ x\n",
    "walrus": lambda n: f"{_HEAD}  return {'(x := ' * n}x{')' * n} @ x\n",
    "statements": lambda n: _HEAD + "  x = torch.softmax(x @ x, -1) @ x\n" * n + "  return x\n",
    "one line": lambda n: "x = 1;" * n,
    "subclasses": _chain,
    "diamonds": _diamonds,
    "makers": _makers,
    "many classes": lambda n: (
        _HEAD + "  return x\n" + "class A(A):\n def forward(self, x): return A()\n" * n
    ),
    "dotted": lambda n: f"from {'.'.join('a' * min(n, 9999))} import x\n",
    "levels": lambda n: f"from {'.' * n}a import x\n",
    "aliases": lambda n: f"from .case import {', '.join(f'A{i}' for i in range(n))}\n",
    "name": lambda n: f"from {'a' * n} import {'b' * n}\nclass {'c' * n}(x.{'d' * n}): pass\n",
    "blank lines": lambda n: "\n" * n + "(\n",
    "spaces": lambda n: f"%time{' ' * n}\n(\n",
    "commands": lambda n: f"{'%' * n}{' ' * n}\n(\n",
    "help": lambda n: f"{'a' * n}{'?' * n}.\n(\n",
    "value": lambda n: f"{'a ' * n}= %time {'-n 1 ' * n}\n(\n",
    "written": lambda n: f"%%writefile {'a' * n}\n(\n",
    "comments": lambda n: "# mha-lint: ignore[MHA201]\n" * n,
    "comment": lambda n: f"x = 1  {'# ' * n}mha-lint\n",
    "codes": lambda n: f"x = 1  # mha-lint: ignore[{'MHA,' * n}]\n",
    "string": lambda n: f"x = '''{'a' * n}\n" * 3 + "# mha-lint: ignore[]\n",
    "lines in string": lambda n: "'''" + "\n# mha-lint: ignore[MHA]" * n,
    "escapes": lambda n: "x = '" + "\\d" * n + "'\n",
    "continued": lambda n: "x = 1 \\\n" * n,
    "number": lambda n: f"x = {'9' * n}\n",
    "matched": lambda n: f"match x:\n case {'[' * n}{']' * n}: pass\n",
    "targets": lambda n: f"{'(' * n}x{',)' * n} = 1\n",
}  # fmt: skip
NESTED = frozenset({"blocks", "classes", "functions"})  # Python allows 100 levels
SIZES = (3, 30, 95, 150, 400, 900, 1000, 2500, 6000, 20000)
LONGEST = 60_000
"""Characters of a text, so that reading it some times over takes less time than is allowed."""


def deep(kind: str, size: int) -> str:
    """Return a text of this kind and size, or a smaller one where it would be too long."""
    while len(text := DEEP[kind](min(size, 150) if kind in NESTED else size)) > LONGEST:
        size //= 2
    return str(text)


texts: SearchStrategy[str] = st.one_of(
    mutated(),
    mutated(),
    st.lists(pick(JUNK) | st.text(max_size=5), max_size=30).map("".join),
    st.builds(lambda kind, n: deep(kind, n), pick(sorted(DEEP)), pick(SIZES)),
)
"""Texts that may be Python."""


def check_source(data: bytes, folder: Path) -> None:
    """Read a file, look for attention in it, and compare its tree with that of Python itself."""
    file = folder / "case.py"
    file.write_bytes(data)
    try:
        source = read_source(str(file))
    except SourceError as error:
        one_line(error.reason)
        require(str(file) in error.reason, "a message without the file's name")
        refused = is_deep(data.decode("latin-1")) or _tree(data) is None
        require(refused, "a file that Python reads is refused")
        return
    own = _tree(data)
    if own is not None:
        require(_nodes(own) == _nodes(source.tree), "another tree than Python's")
    lines = len(re.findall(r"\r\n|\r|\n", source.text)) + 1
    found = scan_source(source)
    require(found == scan_source(source), "two results of two scans")
    require(not found or Project().may_hold(str(file)), "attention is not seen at a glance")
    bound = bound_names(source)
    for one in found[:10]:
        require(1 <= one.line <= one.end_line <= lines, "a line outside the file")
        node = definition(source, one.qualname, one.line)
        require(node is not None and node.lineno == one.line, "a candidate without a definition")
        require(bound is None or one.qualname in bound, "a candidate whose name is not bound")
    check_target(f"case.py::{found[0].qualname if found else 'A'}", folder)
    first, second = (expand(specs("case.py", folder), cwd=str(folder)) for _ in range(2))
    require(first == second and len(first) == len(found), "two results for one file")


def specs(text: str, folder: Path) -> list[TargetSpec]:
    """Return what a text names, if it names anything."""
    spec = parse_target(text, cwd=str(folder))
    return [spec] if isinstance(spec, TargetSpec) else []


def _tree(data: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decode_source(data)  # what compile() lets pass, an import need not
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError):
        return None
    except Exception:  # codecs raise what they like
        return None


def _nodes(tree: ast.AST) -> list[Any]:
    found: list[Any] = []
    for node in ast.walk(tree):
        found.append((type(node), getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        found += [getattr(node, n, None) for n in ("id", "attr", "name", "arg")]
        if isinstance(node, ast.Constant):
            found.append(repr(node.value) if not isinstance(node.value, int) else node.value)
    return found


def check_named(text: str, folder: Path) -> None:
    """Read the text of a target that names nothing outside the folder."""
    (folder / "b.py").write_text("class A: pass\n")
    if text[:1] != "/" and ".." not in text:
        check_target(text, folder)


def check_target(text: str, folder: Path) -> None:
    """Read the text of a target, and look up what it names."""
    spec = parse_target(text, cwd=str(folder))
    require(spec == parse_target(text, cwd=str(folder)), "two results for one text")
    if isinstance(spec, NotChecked):
        _told(spec)
        return
    for given in (spec, dataclasses.replace(spec, build=text, qualname=None)):
        found = expand([given], cwd=str(folder))
        for one in found:
            if isinstance(one, NotChecked):
                _told(one)
            else:
                require(isinstance(one, TargetSpec), "neither a target nor a reason")
                require(one.line is None or one.line >= 1, "a line outside the file")


def _told(reason: NotChecked) -> None:
    one_line(reason.reason, 100_000)  # it repeats what was written
    require(len(reason.hint.splitlines()) < 2, "a hint of several lines")


def check_suppressions(data: bytes, folder: Path) -> None:
    """Read the suppression comments of a text."""
    text = "x = 1  # mha-lint: ignore[MHA101]\n" + data.decode("utf-8", "replace")
    last = len(re.findall(r"\r\n|\r|\n", text)) + 1
    for one in suppressions(text):
        require(1 <= one.first <= one.line <= last, "a line outside the file")
        require(one.first <= one.last, "no line is covered")
        require(all(c == c.strip().upper() and c for c in one.codes), "a code that is none")
    for line, fault in useless_comments(text, ["MHA201", "MHA301"]):
        require(1 <= line <= last, "a line outside the file")
        require("\n" not in fault, "a message of several lines")


def check_cell(data: bytes, folder: Path) -> None:
    """Put out of a text what only IPython understands."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    plain = plain_python(text)
    require(plain.count("\n") == text.count("\n"), "another number of lines")
    script, cell = plain_script(text), plain_cell(text)
    require(script.count("\n") == text.count("\n"), "another number of lines")
    require(cell is None or cell.count("\n") == text.count("\n"), "another number of lines")
    if parses(text):
        require(script == text == cell, "Python is changed")
