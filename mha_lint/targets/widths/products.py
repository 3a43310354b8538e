"""Products and sums of tensors whose head widths or head counts do not fit."""

from __future__ import annotations

import ast
import re

import torch
from torch import nn

from mha_lint.model.target import ShapeProblem
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.scene import Scene
from mha_lint.targets.widths.layout import sums_values
from mha_lint.targets.widths.wording import (
    as_heads,
    lost_channels,
    mismatched,
    plain_name,
)


def linear(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """``mat1 and mat2 shapes cannot be multiplied (20x63 and 64x64)`` in a linear layer."""
    match = re.search(
        r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", message
    )
    if match is None or not isinstance(scene.node, ast.Call) or not scene.node.args:
        return None
    layer = scene.value(scene.node.func)
    given, reads = int(match[1]), int(match[2])
    if not isinstance(layer, nn.Linear) or scene.is_own_input(scene.node.args[0]):
        return None  # the caller passed another width than the module was built for
    name = plain_name(scene.node.func, "the layer")
    return lost_channels(scene, message, given, reads, f"{name} reads {reads} channels") or (
        mismatched(
            scene,
            message,
            f"{name} reads {reads} channels, but is given {given}{as_heads(scene, given)}",
            f"make {name} read {given} channels, or what feeds it {reads} wide",
        )
        if scene.heads() is not None
        else None
    )


def operands(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """q @ k.transpose(-2, -1), torch.matmul, einsum or SDPA with heads that do not fit."""
    found = _query_and_key(scene)
    if found is None or not isinstance(error, RuntimeError):
        return None
    (q_name, q), (k_name, k) = found
    if q.dim() != k.dim() or q.dim() < 3 or sums_values(scene):
        return None
    if q.shape[-1] != k.shape[-1]:
        return mismatched(
            scene,
            message,
            f"{q_name} has head_dim {q.shape[-1]}, {k_name} has {k.shape[-1]}: "
            "one score contracts both",
            "project q and k to the same head_dim",
        )
    if q.dim() == 4 and q.shape[1] != k.shape[1] and q.shape[0] == k.shape[0]:
        heads, kv_heads = sorted((q.shape[1], k.shape[1]), reverse=True)
        known = {v for n, v in scene.named().items() if role_of(n) in (Role.HEADS, Role.KV_HEADS)}
        if q.shape[1] not in known and k.shape[1] not in known:
            return None
        repeat = (
            f"repeat each key/value head {heads // kv_heads} times (repeat_interleave), or pass "
            "enable_gqa=True to scaled_dot_product_attention"
            if kv_heads and heads % kv_heads == 0
            else f"{kv_heads} does not divide {heads}: choose key/value heads that do"
        )
        return mismatched(
            scene, message, f"{q_name} has {q.shape[1]} heads, {k_name} has {k.shape[1]}", repeat
        )
    return None


def _query_and_key(
    scene: Scene,
) -> tuple[tuple[str, torch.Tensor], tuple[str, torch.Tensor]] | None:
    """Return the q and k of the failing score computation as (.., T, head_dim) tensors."""
    node = scene.node
    pair: tuple[ast.expr, ast.expr] | None = None
    turned = True
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            pair = (left, right)
        case ast.Call(func=ast.Attribute(attr="matmul" | "bmm"), args=[left, right]):
            pair = (left, right)
        case ast.Call(func=ast.Attribute(value=left, attr="matmul" | "bmm"), args=[right]):
            pair = (left, right)
        case ast.Call(func=ast.Attribute(attr="scaled_dot_product_attention"), args=[q, k, *_]):
            pair, turned = (q, k), False
        case ast.Call(
            func=ast.Attribute(attr="einsum") | ast.Name(id="einsum"),
            args=[ast.Constant(value=str(pattern)), left, right],
        ):
            terms = pattern.replace(" ", "").partition("->")[0].split(",")
            if len(terms) == 2 and terms[0][-1:] == terms[1][-1:]:
                pair, turned = (left, right), False
        case _:
            return None
    if pair is None:
        return None
    q, k = scene.value(pair[0]), scene.value(pair[1])
    if turned and not _is_turned(pair[1]):
        return None  # weights @ v: what does not fit there is a length
    if not isinstance(q, torch.Tensor) or not isinstance(k, torch.Tensor) or k.dim() < 2:
        return None
    if isinstance(q, nn.Parameter) or isinstance(k, nn.Parameter):
        return None
    plain = k.transpose(-2, -1) if turned else k
    return (plain_name(pair[0], "q"), q), (plain_name(_root(pair[1]), "k"), plain)


def _is_turned(node: ast.expr) -> bool:
    return any(
        getattr(part, "attr", "") in ("transpose", "mT", "permute", "swapaxes", "t", "T")
        for part in ast.walk(node)
    )


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node.value if isinstance(node, ast.Attribute) and node.attr in ("mT", "T") else node


def residual(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """``x + attention(x)`` with another width, or a LayerNorm that is given another one."""
    match = re.search(
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton "
        r"dimension (\d+)",
        message,
    )
    if match is not None:
        node = scene.node
        if not (isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add)):
            return None
        a, b, axis = map(int, match.groups())
        pair = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        ranks = [v.dim() for n in pair if isinstance(v := scene.value(n), torch.Tensor)]
        if not ranks or axis != max(ranks) - 1:
            return None
        small, large = sorted((a, b))
        return lost_channels(scene, message, small, large, f"the residual has {large} channels")
    match = re.search(r"normalized_shape=\[(\d+)\].*got input of size\[([\d, ]+)\]", message)
    if match is not None:
        wanted, given = int(match[1]), int(match[2].split(",")[-1])
        return lost_channels(scene, message, given, wanted, f"the norm expects {wanted} channels")
    return None
