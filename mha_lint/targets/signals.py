"""Signs of attention in source: what a body contracts, normalises and calls.

The signs are semantic: no class, function or variable name counts, only what is computed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mha_lint.targets.imports import Imports
from mha_lint.targets.words import words

CONTRACTIONS = words(
    """matmul bmm einsum baddbmm mm tensordot dot inner contract addbmm chain_matmul"""
)
KERNELS = (
    "scaled_dot_product_attention",
    "multi_head_attention_forward",
    "memory_efficient_attention",
    "flash_attn",
    "flex_attention",
)
TORCH_LAYERS = frozenset(
    [
        "MultiheadAttention",
        "Transformer",
        "TransformerEncoder",
        "TransformerDecoder",
        "TransformerEncoderLayer",
        "TransformerDecoderLayer",
    ]
)
NORMALISERS = ("softmax", "softmin", "entmax", "sparsemax")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Sign:
    """One reason to think that a body computes attention."""

    reason: str
    line: int


def torch_layer(node: ast.AST, imports: Imports) -> str | None:
    """Return the name of the torch.nn attention layer that `node` names, if it does."""
    package, _, name = imports.dotted(node).rpartition(".")
    if name in TORCH_LAYERS and package.startswith("torch.nn"):
        return name
    return None


def find_sign(bodies: Iterable[ast.AST], imports: Imports, helpers: set[str]) -> Sign | None:
    """Return the strongest sign of attention in `bodies`, or None.

    `helpers`: names of functions and methods that normalise and return the result.
    """
    bodies = list(bodies)
    softmax_attributes = _softmax_attributes(bodies, imports)

    def normalises(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = _last_name(node.func)
        return is_normaliser(node, imports) or name in softmax_attributes or name in helpers

    contractions: list[ast.AST] = []
    normaliser: ast.AST | None = None
    for body in bodies:
        for node in ast.walk(body):
            if isinstance(node, ast.Call):
                name = imports.dotted(node.func)
                if any(kernel in name.rpartition(".")[2] for kernel in KERNELS):
                    return Sign(f"calls {name.rpartition('.')[2]}", node.lineno)
                if (layer := torch_layer(node.func, imports)) is not None:
                    return Sign(f"makes nn.{layer}", node.lineno)
            if normalises(node):
                normaliser = normaliser or node
            if contracts(node):
                contractions.append(node)
    if normaliser is not None and len(contractions) >= 2:
        return Sign("softmax among contractions", getattr(normaliser, "lineno", 0))
    for body in bodies:
        if not isinstance(body, Function):
            continue
        if (line := _flows(body, normalises, contracts)) is not None:
            return Sign("contracts what it normalised", line)
        if (line := _flows(body, _contracts_activations, _contracts_activations)) is not None:
            return Sign("two contractions in a chain", line)
    return None


def is_normaliser(node: ast.AST, imports: Imports) -> bool:
    """Tell whether `node` calls a softmax of some kind (not a log-softmax)."""
    if not isinstance(node, ast.Call):
        return False
    name = (imports.dotted(node.func) or _last_name(node.func)).rpartition(".")[2].lower()
    return any(n in name for n in NORMALISERS) and "log" not in name


def contracts(node: ast.AST) -> bool:
    """Tell whether `node` sums products over an axis."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    name = _last_name(node.func)
    if name in CONTRACTIONS:
        return True
    if name == "sum":
        summed = node.func.value if isinstance(node.func, ast.Attribute) else None
        operands = [summed, *node.args[:1]]
        return any(isinstance(o, ast.BinOp) and isinstance(o.op, ast.Mult) for o in operands)
    return False


def _contracts_activations(node: ast.AST) -> bool:
    """Tell whether `node` contracts two things that are both no plain ``self.weight``."""
    if not contracts(node):
        return False
    if isinstance(node, ast.BinOp):
        operands: list[ast.expr] = [node.left, node.right]
    else:
        assert isinstance(node, ast.Call)
        operands = list(node.args)
        if isinstance(node.func, ast.Attribute) and len(operands) == 1:
            operands.append(node.func.value)
    return not any(map(_is_weight, operands))


def _is_weight(node: ast.expr) -> bool:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value  # self.w.t(), self.w.transpose(0, 1)
    while isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return True
        node = node.value
    return False


def _flows(
    function: Function, begins: Callable[[ast.AST], bool], ends: Callable[[ast.AST], bool]
) -> int | None:
    """Return the line where a result of `begins` reaches an operand of `ends`, if one does."""
    tainted: set[str] = set()

    def carries(node: ast.AST) -> bool:
        return any(
            begins(part) or (isinstance(part, ast.Name) and part.id in tainted)
            for part in ast.walk(node)
        )

    for _ in range(4):  # assignments in a row, also backwards in loops
        before = len(tainted)
        for node in ast.walk(function):
            for targets, value in assignments(node):
                if carries(value):
                    tainted |= targets
        if len(tainted) == before:
            break
    for node in ast.walk(function):
        if ends(node) and any(carries(child) for child in ast.iter_child_nodes(node)):
            return getattr(node, "lineno", None)
    return None


def assignments(node: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """Yield (names, value) for each name that `node` binds to a value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield _names(target), value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield _names(target), value
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield _names(target), value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield _names(target), value
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
            yield {name}, value


def _names(target: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _softmax_attributes(bodies: Iterable[ast.AST], imports: Imports) -> set[str]:
    """Return attribute names that hold a softmax layer or function."""
    found = set()
    for body in bodies:
        for node in ast.walk(body):
            if not isinstance(node, ast.Assign):
                continue
            value = node.value
            function = imports.dotted(value).rpartition(".")[2].lower()
            holds = is_normaliser(value, imports) or function == "softmax"
            if holds:
                found |= {t.attr for t in node.targets if isinstance(t, ast.Attribute)}
    return found
