"""Width checks that raise on purpose: the user's own, and those of nn.MultiheadAttention."""

from __future__ import annotations

import ast
import re

from mha_lint.model.target import ShapeProblem
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.scene import Scene
from mha_lint.targets.widths.wording import (
    MISMATCHED,
    indivisible,
    mismatched,
    plain_name,
)


def own_check(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """``assert d_model % num_heads == 0``, or ``if ...: raise ValueError``."""
    test: ast.expr | None = None
    if isinstance(scene.statement, ast.Assert):
        test = scene.statement.test
    elif isinstance(scene.statement, ast.Raise):
        holder = scene.parents.get(id(scene.statement))
        test = holder.test if isinstance(holder, ast.If) else None
    if test is None or scene.inner:
        return None
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            width, heads = scene.integer(node.left), scene.integer(node.right)
            if width and heads and width % heads and _is_head_count(node.right, scene, heads):
                names = (
                    (plain_name(node.right, "num_heads"), heads),
                    (plain_name(node.left, "d_model"), width),
                )
                return indivisible(scene, message, *names)
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            for product, whole in (
                (node.left, node.comparators[0]),
                (node.comparators[0], node.left),
            ):
                found = _product_check(scene, message, product, whole)
                if found is not None:
                    return found
    return None


def _product_check(
    scene: Scene, message: str, product: ast.expr, whole: ast.expr
) -> ShapeProblem | None:
    """``assert self.head_dim * num_heads == embed_dim``."""
    if not (isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)):
        return None
    width = scene.integer(whole)
    a, b = scene.integer(product.left), scene.integer(product.right)
    if not width or not a or not b or a * b == width:
        return None
    nodes = ((product.left, a, b), (product.right, b, a))
    for node, heads, head_dim in nodes:
        if role_of(plain_name(node, "")) is Role.HEADS:
            name, wide = plain_name(node, "num_heads"), plain_name(whole, "d_model")
            if width % heads:
                return indivisible(scene, message, (name, heads), (wide, width))
            return mismatched(
                scene,
                message,
                f"{name} x head_dim = {heads} x {head_dim} = {heads * head_dim}, "
                f"but {wide} = {width}",
                f"head_dim must be {width // heads} for {heads} heads of {wide} = {width}",
            )
    return None


def _is_head_count(node: ast.expr, scene: Scene, value: int) -> bool:
    if role_of(plain_name(node, "")) in (Role.HEADS, Role.KV_HEADS, Role.GROUPS):
        return True
    heads = scene.heads()
    return heads is not None and heads[1] == value


def torch_multihead(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """nn.MultiheadAttention's own assert, in its constructor or its forward."""
    if not isinstance(error, AssertionError) or not scene.inner:
        return None
    values = scene.inner[-1].f_locals
    if "divisible by num_heads" in message:
        width, heads = values.get("embed_dim"), values.get("num_heads")
        if type(width) is int and type(heads) is int and heads > 0 and width % heads:
            lead = "nn.MultiheadAttention"
            return indivisible(scene, message, ("num_heads", heads), ("embed_dim", width), lead)
    match = re.search(r"expecting embedding dimension of (\d+), but got (\d+)", message)
    if match and isinstance(scene.node, ast.Call):
        if all(scene.is_own_input(a) for a in scene.node.args[:1]):
            return None  # the caller passed another width than the module was built for
        return mismatched(
            scene,
            message,
            f"nn.MultiheadAttention of embed_dim = {match[1]} is given {match[2]} channels",
            "make the layer before it as wide as embed_dim, or set embed_dim to its width",
        )
    return None


def checkpoint(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """``size mismatch for q.weight: copying a param with shape ...`` of load_state_dict."""
    match = re.search(
        r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from "
        r"checkpoint, the shape in current model is torch\.Size\(\[([\d, ]*)\]\)",
        message,
    )
    if match is None:
        return None
    name, stored, here = match.groups()
    return ShapeProblem(
        MISMATCHED,
        f"{name} is ({stored}) in the checkpoint, but ({here}) in the module that was built",
        scene.span,
        "build the module with the sizes of the checkpoint",
        tuple(line.strip() for line in message.splitlines() if "size mismatch" in line)[:6],
    )
