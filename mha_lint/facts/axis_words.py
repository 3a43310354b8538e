"""What a user's source says about axis 0: names of sizes, pooling, indexing, and the comments."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import Any

from torch import nn

from mha_lint.facts.classes import class_sources, function_source

_BATCH = r"(?:b|bs|bsz|bz|nb|batch|batch_size|batchsize|n_batch|num_batch|nbatch|samples?)"
_TIME = (
    r"(?:t|s|l|ln|n|seq|seq_len|seqlen|length|len|time|steps?|tgt_len|src_len|target_len|source_len|"
    r"tokens?)"
)
_DOC_BATCH = re.compile(rf"[(\[]\s*{_BATCH}\s*[,x*]\s*\w", re.IGNORECASE)
_DOC_TIME = re.compile(rf"[(\[]\s*{_TIME}\s*[,x*]\s*{_BATCH}\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AxisVerdict:
    """What axis 0 holds, and what says so; ``strong``: it is code."""

    is_batch: bool
    why: str
    strong: bool = True


def said_in(text: str) -> list[AxisVerdict]:
    """Return what the code, a comment or a docstring of `text` says."""
    votes = _in_code(text)
    if _DOC_TIME.search(text):
        votes.append(AxisVerdict(False, "a comment or docstring writes the shape time-first"))
    elif _DOC_BATCH.search(text):
        why = "a comment or docstring writes the shape batch-first"
        votes.append(AxisVerdict(True, why, strong=False))
    return votes


def _in_code(text: str) -> list[AxisVerdict]:
    """Return what names, pooling and indexing in the code say about axis 0."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return []
    found: list[AxisVerdict] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and _is_shape(node.value)
        ):
            names = [e.id.lower() for e in node.targets[0].elts if isinstance(e, ast.Name)]
            if len(names) >= 3 and len(names) == len(node.targets[0].elts):
                line = ast.unparse(node)
                batch = [bool(re.fullmatch(_BATCH, n)) for n in names]
                if batch[0]:
                    found.append(AxisVerdict(True, f"the code says {line}"))
                elif any(batch):
                    found.append(AxisVerdict(False, f"the code says {line}"))
        elif isinstance(node, ast.Assign):
            found += _second_is_batch(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            axis = _reduced_axis(node)
            if axis == 1:
                found.append(AxisVerdict(True, f"the code pools over axis 1: {ast.unparse(node)}"))
            elif axis == 0:
                found.append(AxisVerdict(False, f"the code pools over axis 0: {ast.unparse(node)}"))
            elif _for_each_sample(node):
                found.append(AxisVerdict(True, f"the code says {ast.unparse(node)}"))
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Tuple)
            and len(node.slice.elts) >= 2
        ):
            first, second = node.slice.elts[:2]
            whole = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
            if (
                whole
                and isinstance(second, ast.Constant | ast.UnaryOp)
                and ast.unparse(second) != "None"
                and len(node.slice.elts) == 2
            ):
                found.append(AxisVerdict(True, f"the code picks one position: {ast.unparse(node)}"))
    return found


def _second_is_batch(node: ast.Assign) -> list[AxisVerdict]:
    """Return that axis 0 is no batch where the size of axis 1 is called one: B = x.size(1)."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
    else:
        pairs = [(target, value)]
    for name, one in pairs:
        if isinstance(name, ast.Name) and re.fullmatch(_BATCH, name.id.lower()):
            match one:
                case (
                    ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=1)])
                    | ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=1))
                ):
                    return [AxisVerdict(False, f"the code says {ast.unparse(node)}")]
    return []


def _for_each_sample(node: ast.Call) -> bool:
    """Return whether one token is repeated for every sample on axis 0: t.expand(x.size(0), -1, -1)."""
    match node:
        case (
            ast.Call(
                func=ast.Attribute(attr="expand"),
                args=[
                    ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]),
                    *rest,
                ],
            )
            | ast.Call(
                func=ast.Attribute(attr="expand"),
                args=[
                    ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0)),
                    *rest,
                ],
            )
        ):
            return len(rest) == 2 and all(ast.unparse(r) == "-1" for r in rest)
    return False


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "shape"
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
    )


def _reduced_axis(node: ast.Call) -> int | None:
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in (
        "mean",
        "sum",
        "max",
        "amax",
    ):
        return None
    if any(k.arg == "keepdim" and ast.unparse(k.value) == "True" for k in node.keywords):
        return None  # what is kept is divided by or taken off, as in a softmax by hand
    given = next(
        (k.value for k in node.keywords if k.arg in ("dim", "axis")),
        node.args[0] if node.args else None,
    )
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def source_text(root: Any) -> str:
    """Return the source of the class (or function) of `root`, "" where there is none."""
    if isinstance(root, nn.Module):
        return "\n".join(source.text for source in class_sources(type(root)))
    source = function_source(root)
    return source.text if source is not None else ""
