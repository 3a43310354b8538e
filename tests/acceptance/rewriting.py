"""Rewrites fixtures such that their faults stay on their lines, and as little else as possible.

``renamed`` gives every name of the file's own another one, but for those by which a caller hands on
a cache; ``own_layers`` replaces nn.Linear by a layer written by hand; ``in_a_model`` puts the module
behind a layer, a norm and a residual, as in the second block of a model. What is measured must come
out as before.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from dataclasses import dataclass

import torch

_KEPT = {"self", "cls", "forward", "torch", "nn", "F", "math", "training"}
_TORCH = {
    name
    for owner in (torch, torch.nn, torch.nn.functional, torch.Tensor, torch.nn.Module)
    for name in dir(owner)
} | {
    "axis", "bias", "dim", "p", "eps", "dtype", "device", "kdim", "vdim", "enable_gqa", "scale",
    "mask", "attn_mask", "key_padding_mask", "src_mask", "tgt_mask", "memory_mask",
    "src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "value", "diagonal",
}  # fmt: skip
"""Names that torch has given a meaning: as an attribute, or as a keyword."""
_PROTOCOL = re.compile(r"past|cache|^mems$|^state$|^start_pos$|^input_pos$|^position_ids$", re.I)
"""Names of arguments of ``forward``, and of classes, that hold what was computed before: nothing else
tells a caller that they are to be passed on from call to call."""
_NAMING = {"register_buffer": 0, "register_parameter": 0, "add_module": 0, "register_module": 0}
_NAMING |= {"setattr": 1, "getattr": 1, "hasattr": 1, "delattr": 1}
"""Functions that take the name of an attribute as a string, and its place among their arguments."""

_LAYER = """

class _Dense(torch.nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        kernel = torch.randn(in_features, out_features) / in_features**0.5
        self.kernel = torch.nn.Parameter(kernel)
        self.offset = torch.nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x):
        rows = x.reshape(-1, x.size(-1)) @ self.kernel
        y = rows.view(*x.shape[:-1], rows.size(-1))
        return y if self.offset is None else y + self.offset
"""

_MODEL = """

class _Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)
        self.inner = {build}

    def forward(self, x):
        x = x + torch.relu(self.before(x))
        y = self.inner(self.norm(x))
        if isinstance(y, (tuple, list)):
            y = y[0]
        return x + y if y.shape == x.shape else y
"""


@dataclass(frozen=True, slots=True)
class Text:
    """A file with what builds and calls its module."""

    source: str
    build: str
    call: str


def renamed(text: Text) -> Text | None:
    """Return `text` with ``z0``, ``z1``... for all names that the file makes itself."""
    tree = ast.parse(text.source)
    kept = _KEPT | _TORCH | _protocol(tree)
    own = {
        name
        for node in ast.walk(tree)
        for name in _made(node)
        if name not in kept and not name.startswith("__") and not hasattr(builtins, name)
    }
    table = {name: f"z{i}" for i, name in enumerate(sorted(own))}
    strings = [c for node in ast.walk(tree) if (c := _attribute_named(node)) is not None]
    named = {(c.lineno, c.col_offset): str(c.value) for c in strings}
    build, call = _replaced(text.build, table, {}), _replaced(text.call, table, {})
    return Text(_replaced(text.source, table, named), build, call)


def _protocol(tree: ast.Module) -> set[str]:
    """Return the names by which a cache is handed from one call to the next."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            names |= {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
    return {name for name in names if _PROTOCOL.search(name)}


def _made(node: ast.AST) -> list[str]:
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    named = _attribute_named(node)
    return [] if named is None else [str(named.value)]


def _attribute_named(node: ast.AST) -> ast.Constant | None:
    """Return the string by which a call names an attribute, as register_buffer("cos", ...) does."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    called = getattr(function, "attr", getattr(function, "id", ""))
    place = _NAMING.get(called)
    found = node.args[place] if place is not None and place < len(node.args) else None
    return found if isinstance(found, ast.Constant) and isinstance(found.value, str) else None


def _replaced(source: str, table: dict[str, str], named: dict[tuple[int, int], str]) -> str:
    """Return `source` with other names; `named`: where strings stand that are names, too."""
    lines = source.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        name = token.string if token.type == tokenize.NAME else named.get(token.start)
        if name in table:
            row, column = token.start
            line, new = lines[row - 1], table[name]
            new = new if token.type == tokenize.NAME else f'"{new}"'
            lines[row - 1] = line[:column] + new + line[column + len(token.string) :]
    return "\n".join(lines)


def own_layers(text: Text) -> Text | None:
    """Return `text` with a layer of its own for nn.Linear; None where torch's own is needed."""
    needed = re.search(r"\.weight|dtype|nn\.Transformer|nn\.Multi", text.source)
    if "nn.Linear(" not in text.source or needed or "dtype" in text.build:
        return None
    source = re.sub(r"(torch\.)?nn\.Linear\(", "_Dense(", text.source)
    return Text(_with_torch(source) + _LAYER, text.build, text.call)


def in_a_model(text: Text) -> Text | None:
    """Return `text` with its module inside of a model; None unless it takes one (B, T, C) input.

    The model has no argument for a cache: what takes one stays outside as well.
    """
    call = re.fullmatch(r"torch\.randn\(\d+, \d+, (\d+)\)", text.call)
    if call is None or not re.match(r"[A-Z]\w*\(", text.build) or _protocol(ast.parse(text.source)):
        return None
    source = _with_torch(text.source) + _MODEL.format(build=text.build)
    return Text(source, f"_Model({call[1]})", text.call)


def _with_torch(source: str) -> str:
    """Return `source`, which may only know parts of torch, with torch itself; lines stay."""
    return source if re.search(r"^import torch$", source, re.M) else source + "\n\nimport torch\n"
