"""Splits into heads and merges of heads that do not come out even."""

from __future__ import annotations

import ast
import re

import torch

from mha_lint.model.target import ShapeProblem
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.scene import Scene
from mha_lint.targets.widths.wording import (
    axis_text,
    indivisible,
    leads_shape,
    mismatched,
    plain_name,
)


def invalid_view(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """``shape '[2, 10, 9, 7]' is invalid for input of size 1280``."""
    match = re.search(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", message)
    if match is None or not isinstance(scene.node, ast.Call):
        return None
    shape, size = [int(n) for n in match[1].split(",")], int(match[2])
    call = scene.node
    receiver = scene.value(call.func.value) if isinstance(call.func, ast.Attribute) else None
    axes = _axes_of(call)
    if len(axes) != len(shape) or len(shape) < 3:
        axes = [None] * len(shape)
    lead = shape[:2]
    if min(lead) < 1 or size % (lead[0] * lead[1]) or not leads_shape(scene, receiver, lead):
        return None
    channels = size // (lead[0] * lead[1])
    shown = (
        f"{_method(call)}({', '.join(axis_text(a, s) for a, s in zip(axes, shape, strict=True))})"
    )
    if len(shape) == 3:
        return _merged(scene, message, shown, shape[2], channels, receiver, axes[2])
    if len(shape) == 4:
        return _split(scene, message, shown, shape[2:], channels, axes[2:])
    return None


def _split(
    scene: Scene,
    message: str,
    shown: str,
    parts: list[int],
    channels: int,
    axes: list[ast.expr | None],
) -> ShapeProblem | None:
    """Explain a split of `channels` into (heads, head_dim); -1 stands for "what is left"."""
    heads, head_dim = parts
    if (
        role_of(plain_name(axes[0], "")) is Role.HEAD_DIM
        and role_of(plain_name(axes[1], "")) is Role.HEADS
    ):
        heads, head_dim, axes = head_dim, heads, [axes[1], axes[0]]
    name = plain_name(axes[0], "") or "num_heads"
    if heads < 1:
        if head_dim < 1 or channels % head_dim == 0:
            return None
        return mismatched(
            scene,
            message,
            f"{shown}: the {channels} channels of the projection are no multiple of "
            f"{plain_name(axes[1], '') or 'head_dim'} = {head_dim}",
            "make the projection's width num_heads x head_dim",
        )
    if head_dim > 0 and heads * head_dim == channels:
        return None
    width_name = scene.name_of(channels, Role.WIDTH, default="d_model")
    if channels % heads:
        lead = ""
        if head_dim > 0:
            lead = f"{shown} needs {heads * head_dim} channels, the projection gives {channels}"
        return indivisible(scene, message, (name, heads), (width_name, channels), lead or shown)
    if isinstance(axes[0], ast.Constant):
        text = f"{shown}: the head count {heads} is hard-coded"
        known = scene.heads()
        if known is not None and known[1] != heads:
            text += f", but {known[0]} = {known[1]}"
        text += (
            f"; the projection gives {channels} channels, {heads} x {head_dim} = {heads * head_dim}"
        )
        return mismatched(scene, message, text, "use the configured head count there")
    if head_dim < 1:
        return None
    return mismatched(
        scene,
        message,
        f"{shown} needs {heads * head_dim} channels, the projection gives {channels}: "
        f"{plain_name(axes[1], '') or 'head_dim'} = {head_dim} contradicts "
        f"{channels} / {heads} = {channels // heads}",
        f"make the projection {heads * head_dim} wide, or head_dim {channels // heads}",
    )


def _merged(
    scene: Scene,
    message: str,
    shown: str,
    wanted: int,
    channels: int,
    receiver: object,
    axis: ast.expr | None,
) -> ShapeProblem | None:
    """Explain a merge of heads into another width than they hold."""
    parts = list(receiver.shape[2:]) if isinstance(receiver, torch.Tensor) else []
    heads = scene.heads()
    if len(parts) != 2 and heads is None:
        return None
    h = parts[0] if len(parts) == 2 else (heads[1] if heads else 1)
    if wanted < 1 or channels % h:
        return None
    head_dim = channels // h
    name = plain_name(axis, "") or "the merged width"
    if wanted % h and wanted // h == head_dim and heads is not None:
        lead = f"{shown} wants {wanted} channels, {h} heads of {head_dim} hold {channels}"
        return indivisible(scene, message, heads, (name, wanted), lead)
    return mismatched(
        scene,
        message,
        f"{shown} merges the heads into {name} = {wanted} channels, "
        f"but {h} heads of {head_dim} hold {channels}",
        f"merge into {h} x {head_dim} = {channels} channels: use heads x head_dim, or -1",
    )


def unflattened(scene: Scene, error: BaseException, message: str) -> ShapeProblem | None:
    """``unflatten(-1, (heads, -1))``, and einops' "can't divide axis of length 64 in chunks of 9"."""
    match = re.search(
        r"unflatten: Provided sizes \[([-\d, ]+)\] don't multiply up to the size of dim "
        r"-?\d+ \((\d+)\)",
        message,
    )
    if match is not None and isinstance(scene.node, ast.Call):
        parts, channels = [int(n) for n in match[1].split(",")], int(match[2])
        sizes = scene.node.args[1] if len(scene.node.args) > 1 else None
        axes: list[ast.expr | None] = [None, None]
        if isinstance(sizes, ast.Tuple | ast.List) and len(sizes.elts) == 2:
            axes = list(sizes.elts)
        if len(parts) == 2:
            inner = ", ".join(axis_text(a, p) for a, p in zip(axes, parts, strict=True))
            return _split(scene, message, f"unflatten(({inner}))", parts, channels, axes)
    match = re.search(r"can't divide axis of length (\d+) in chunks of (\d+)", message)
    if match is not None:
        width, chunks = int(match[1]), int(match[2])
        heads = scene.heads()
        name = heads[0] if heads is not None and heads[1] == chunks else "num_heads"
        width_name = scene.name_of(width, Role.WIDTH, default="d_model")
        return indivisible(scene, message, (name, chunks), (width_name, width), "rearrange")
    return None


def _axes_of(call: ast.Call) -> list[ast.expr | None]:
    arguments = list(call.args)
    match call.func:
        case ast.Attribute(value=ast.Name(id="torch"), attr="reshape"):
            arguments = arguments[1:]
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        arguments = list(arguments[0].elts)
    return list(arguments)


def _method(call: ast.Call) -> str:
    return getattr(call.func, "attr", "view")
