"""Products whose operand stands the wrong way round, and views of what is not contiguous.

Both fail at every size but a few: one head, or as many positions as a head has channels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import torch
from torch import nn

from mha_lint.model.target import ShapeProblem, Translation
from mha_lint.targets.scene import Scene
from mha_lint.targets.widths.wording import mismatched, plain_name

NOT_CONTIGUOUS = "view size is not compatible with input tensor's size and stride"
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)


def unturned(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """Explain scores that contract q (.., T, d) with k (.., T, d): k was not transposed."""
    pair = _product(scene)
    if pair is None or not isinstance(error, RuntimeError):
        return None
    (left, q), (right, k) = pair
    if q.dim() != k.dim() or q.dim() < 3 or q.shape[:-2] != k.shape[:-2]:
        return None
    if q.shape[-1] != k.shape[-1] or q.shape[-1] == k.shape[-2]:
        return None
    if not multiplies_own_tensors(scene) or not _makes_scores(scene):
        return None
    q_name, k_name = plain_name(left, "q"), plain_name(right, "k")
    return mismatched(
        scene,
        message,
        f"scores: {q_name} {_axes(q)} @ {k_name} {_axes(k)}: the last axis of {q_name}, "
        f"{q.shape[-1]} channels, meets the {k.shape[-2]} positions of {k_name}",
        f"transpose {k_name}: {_shown(right)}.transpose(-2, -1)",
    )


def crossed(scene: Scene, error: BaseException, message: str) -> Translation | None:
    """Say of any other product of two tensors which axes meet, and do not fit."""
    pair = _product(scene)
    if pair is None or not isinstance(error, RuntimeError):
        return None
    (left, a), (right, b) = pair
    if min(a.dim(), b.dim()) < 2 or a.shape[-1] == b.shape[-2]:
        return None
    a_name, b_name = _name(left, "the left"), _name(right, "the right")
    text = (
        f"{a_name} {_numbers(a)} @ {b_name} {_numbers(b)}: the last axis of {a_name}, "
        f"{a.shape[-1]}, must be as long as the last but one of {b_name}, {b.shape[-2]}"
    )
    help_ = ""
    if a.shape[-1] == b.shape[-1] and not isinstance(b, nn.Parameter):
        plain = _before_turning(right)
        help_ = f"transpose {b_name}: {_shown(right)}.transpose(-2, -1)"
        if plain is not None:
            help_ = f"do not transpose: {ast.unparse(plain)}"
    return Translation(text, scene.span, help_)


def multiplies_own_tensors(scene: Scene) -> bool:
    """Tell whether the code itself made both operands, neither the caller nor its parameters."""
    pair = _product(scene)
    if pair is None:
        return False
    return not any(isinstance(t, nn.Parameter) or _is_given(scene, t) for _, t in pair)


def scattered(scene: Scene, error: BaseException, message: str) -> Translation | None:
    """``x.transpose(1, 2).view(...)``: a view cannot join axes that do not lie side by side."""
    call = scene.node
    if NOT_CONTIGUOUS not in message or not isinstance(call, ast.Call):
        return None
    arguments = ", ".join(ast.unparse(a) for a in call.args)
    shown = f"view({arguments})" if len(arguments) <= _LONGEST else "view"
    turned = getattr(call.func, "value", None)
    method = getattr(getattr(turned, "func", None), "attr", "")
    after = f" after {method}" if method in ("transpose", "permute", "swapaxes") else ""
    return Translation(
        f"{shown}{after} needs contiguous memory",
        scene.span,
        f"use {shown.replace('view', 'reshape', 1)}, or .contiguous() before the view",
    )


_LONGEST = 60


def _product(
    scene: Scene,
) -> tuple[tuple[ast.expr, torch.Tensor], tuple[ast.expr, torch.Tensor]] | None:
    """Return both operands of the failing product, where they are tensors in sight."""
    match scene.node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            pass
        case ast.Call(func=ast.Attribute(attr="matmul" | "bmm"), args=[left, right]):
            pass
        case ast.Call(func=ast.Attribute(value=left, attr="matmul" | "bmm"), args=[right]):
            pass
        case ast.Call(
            func=ast.Attribute(attr="einsum") | ast.Name(id="einsum"),
            args=[ast.Constant(value=str(pattern)), left, right],
        ) if _multiplies(pattern):
            pass
        case _:
            return None
    a, b = scene.value(left), scene.value(right)
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return None
    return (left, a), (right, b)


def _multiplies(pattern: str) -> bool:
    """Tell whether an einsum pattern is a batched matrix product: ``bhid,bhdj->bhij``."""
    terms = pattern.replace(" ", "").partition("->")[0].split(",")
    a, b = terms if len(terms) == 2 else ("", "")
    return len(a) == len(b) > 1 and a[:-2] == b[:-2] and a[-1] == b[-2] != a[-2]


def _is_given(scene: Scene, tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` is, or is a view of, an argument of the call that was made."""
    code, values = scene.outermost.f_code, scene.outermost.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    place = tensor.untyped_storage().data_ptr()
    given = (values.get(name) for name in names)
    return any(
        isinstance(g, torch.Tensor) and g.untyped_storage().data_ptr() == place for g in given
    )


def sums_values(scene: Scene) -> bool:
    """Tell whether the failing expression reads what a softmax gave: weights, not queries."""
    if any(_normalises(part, scene) for part in ast.walk(scene.node)):
        return True
    weights: set[str] = set()
    for statement in _statements(scene):
        if _place(statement) >= _place(scene.statement):
            break
        if _reads(statement) & weights or any(_normalises(p, scene) for p in ast.walk(statement)):
            weights |= _binds(statement)
    return bool(_reads_of(scene.node) & weights)


def _makes_scores(scene: Scene) -> bool:
    """Tell whether the failing product would go into a softmax, and nothing of one into it."""
    if sums_values(scene):
        return False
    holder: ast.AST = scene.node
    while not isinstance(holder, ast.stmt):
        holder = scene.parents[id(holder)]
        if _normalises(holder, scene):
            return True
    scores = _binds(scene.statement)
    for statement in _statements(scene):
        if _place(statement) <= _place(scene.statement):
            continue
        for part in ast.walk(statement):
            if _normalises(part, scene) and _reads_of(part) & scores:
                return True
        if _reads(statement) & scores:
            scores |= _binds(statement)
    return False


def _statements(scene: Scene) -> Iterator[ast.stmt]:
    """Yield the simple statements of the function that failed, in the order of their lines."""
    function: ast.AST = scene.statement
    while not isinstance(function, Functions):
        function = scene.parents[id(function)]
    simple = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
    found = [n for n in ast.walk(function) if isinstance(n, simple)]
    yield from sorted(found, key=_place)


def _place(statement: ast.stmt) -> tuple[int, int]:
    return statement.lineno, statement.col_offset


def _normalises(node: ast.AST, scene: Scene) -> bool:
    """Tell whether `node` is a call of a softmax: a function, a method or a module."""
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return "softmax" in name.lower() or isinstance(scene.value(node.func), nn.Softmax)


def _binds(statement: ast.stmt) -> set[str]:
    targets: list[ast.expr] = list(getattr(statement, "targets", []))
    targets += [t] if isinstance(t := getattr(statement, "target", None), ast.expr) else []
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _reads(statement: ast.stmt) -> set[str]:
    return _reads_of(statement) | (
        _binds(statement) if isinstance(statement, ast.AugAssign) else set()
    )


def _reads_of(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _axes(tensor: torch.Tensor) -> str:
    names = {3: "(B, T, d)", 4: "(B, h, T, d)"}.get(tensor.dim(), "")
    return f"{names} = {_numbers(tensor)}" if names else _numbers(tensor)


def _numbers(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"


def _name(node: ast.expr, default: str) -> str:
    text = ast.unparse(node)
    return plain_name(node, "") or (text if len(text) <= _LONGEST else default)


def _before_turning(node: ast.expr) -> ast.expr | None:
    """Return ``v`` of ``v.transpose(-2, -1)`` or ``v.mT``."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="transpose" | "swapaxes" | "permute")):
            return inner
        case ast.Attribute(value=inner, attr="mT" | "T"):
            return inner
        case _:
            return None


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Lambda) else text
