"""What the code calls the values that it returns."""

from __future__ import annotations

import ast
import re

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources

_PATH = re.compile(r"\[(\d+)\]")
_KEY = re.compile(r"(?:\.|\[')([A-Za-z_]\w*)")
_SAME = frozenset(
    (
        "transpose", "permute", "mean", "sum", "detach", "cpu", "squeeze", "unsqueeze", "view",
        "reshape", "contiguous", "float", "clone", "to", "type_as", "movedim", "swapaxes",
    )
)  # fmt: skip
"""Methods whose result is still called what they were called on."""
_WEIGHTS = re.compile(r"weight|prob")
_ATTENTION = re.compile(r"att|alpha")
_OTHERS = re.compile(r"score|logit|energ|sim|raw|pre|unnorm|align|mask|bias")


def name_of_output(bench: Bench, index: int) -> str:
    """Return the name of an output: its key, its field, or the variable that is returned there."""
    path = bench.recording.output_names[index]
    keys = _KEY.findall(path)
    if keys:
        return str(keys[-1])
    found = _PATH.match(path)
    module = bench.recording.module
    if found is None or module is None:
        return ""
    names = {_element(r, int(found[1])) for r in _returns(type(module))} - {""}
    return names.pop() if len(names) == 1 else ""


def says_weights(name: str, alone: bool) -> bool:
    """Return whether `name` says that a value holds attention weights.

    `alone`: that it is about attention suffices, as where it is known to be made from weights.
    """
    plain = name.lower()
    if not plain or _OTHERS.search(plain):
        return False
    return bool(_WEIGHTS.search(plain) or (alone and _ATTENTION.search(plain)))


def _returns(cls: type) -> list[ast.Return]:
    for source in class_sources(cls):
        for node in source.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "forward":
                return [n for n in ast.walk(node) if isinstance(n, ast.Return)]
    return []


def _element(statement: ast.Return, index: int) -> str:
    value = statement.value
    if not isinstance(value, ast.Tuple | ast.List) or index >= len(value.elts):
        return ""
    element = value.elts[index]
    while (
        isinstance(element, ast.Call)
        and isinstance(element.func, ast.Attribute)
        and element.func.attr in _SAME
    ):
        element = element.func.value
    match element:
        case ast.Name(id=name):
            return "" if name == "self" else name
        case ast.Attribute(attr=name):
            return name
    return ""
