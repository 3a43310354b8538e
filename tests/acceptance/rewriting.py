"""Rewrites fixtures such that their faults stay on their lines, and nothing else stays the same.

``renamed`` gives every name of the file's own another one; ``own_layers`` replaces nn.Linear by a
layer written by hand; ``in_a_model`` puts the module behind a layer, a norm and a residual, as in
the second block of a model. What is measured must come out as before.
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

_LAYER = """

class _Dense(torch.nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
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
    own = {
        name
        for node in ast.walk(ast.parse(text.source))
        for name in _made(node)
        if name not in _KEPT | _TORCH and not name.startswith("__") and not hasattr(builtins, name)
    }
    table = {name: f"z{i}" for i, name in enumerate(sorted(own))}
    return Text(*(_replaced(part, table) for part in (text.source, text.build, text.call)))


def _made(node: ast.AST) -> list[str]:
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    return []


def _replaced(source: str, table: dict[str, str]) -> str:
    lines = source.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type == tokenize.NAME and token.string in table:
            row, column = token.start
            line = lines[row - 1]
            rest = line[column + len(token.string) :]
            lines[row - 1] = line[:column] + table[token.string] + rest
    return "\n".join(lines)


def own_layers(text: Text) -> Text | None:
    """Return `text` with a layer of its own for nn.Linear; None where torch's own is needed."""
    needed = re.search(r"\.weight|dtype|nn\.Transformer|nn\.Multi", text.source)
    if "nn.Linear(" not in text.source or needed or "dtype" in text.build:
        return None
    source = re.sub(r"(torch\.)?nn\.Linear\(", "_Dense(", text.source)
    return Text(_with_torch(source) + _LAYER, text.build, text.call)


def in_a_model(text: Text) -> Text | None:
    """Return `text` with its module inside of a model; None unless it takes one (B, T, C) input."""
    call = re.fullmatch(r"torch\.randn\(\d+, \d+, (\d+)\)", text.call)
    if call is None or not re.match(r"[A-Z]\w*\(", text.build):
        return None
    source = _with_torch(text.source) + _MODEL.format(build=text.build)
    return Text(source, f"_Model({call[1]})", text.call)


def _with_torch(source: str) -> str:
    """Return `source`, which may only know parts of torch, with torch itself; lines stay."""
    return source if re.search(r"^import torch$", source, re.M) else source + "\n\nimport torch\n"
