"""Words and names that all explanations of width errors share."""

from __future__ import annotations

import ast

import torch

from mha_lint.model.target import ShapeProblem
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.scene import Scene

INDIVISIBLE = "MHA102"
MISMATCHED = "MHA103"


def valid_heads(width: int) -> list[int]:
    """Return the head counts that divide `width`."""
    return [n for n in range(1, width + 1) if width % n == 0]


def indivisible(
    scene: Scene, message: str, heads: tuple[str, int], width: tuple[str, int], lead: str = ""
) -> ShapeProblem:
    """Return the finding that `heads` does not divide `width`."""
    (heads_name, h), (width_name, w) = heads, width
    valid = valid_heads(w)
    near = [*[n for n in valid if n < h][-1:], *[n for n in valid if n > h][:1]]
    article = "an" if width_name[:1].lower() in "aeiou" else "a"
    text = (
        f"{heads_name} = {h} does not divide {width_name} = {w}"
        f" (remainder {w % h}); valid: {', '.join(map(str, valid))}"
    )
    return ShapeProblem(
        INDIVISIBLE,
        f"{lead}: {text}" if lead else text,
        scene.span,
        f"use {' or '.join(map(str, near))} heads, or {article} {width_name} that is a multiple of {h}",
        (message.splitlines()[0] if message else "the code's own check failed",),
    )


def mismatched(scene: Scene, message: str, text: str, help_: str) -> ShapeProblem:
    """Return the finding that widths contradict each other, in these words."""
    first = message.splitlines()[0] if message else "the code's own check failed"
    return ShapeProblem(MISMATCHED, text, scene.span, help_, (first,))


def lost_channels(
    scene: Scene, message: str, given: int, wanted: int, lead: str
) -> ShapeProblem | None:
    """Explain ``given`` = heads * (wanted // heads): the remainder was dropped before."""
    heads = scene.heads()
    if heads is None or not wanted % heads[1] or given != heads[1] * (wanted // heads[1]):
        return None
    width_name = scene.name_of(wanted, Role.WIDTH, default="d_model")
    lead += f", the concatenated heads are {heads[1]} x {wanted // heads[1]} = {given}"
    return indivisible(scene, message, heads, (width_name, wanted), lead)


def as_heads(scene: Scene, channels: int) -> str:
    """Return " (4 heads of 16)" where the channels are whole heads."""
    heads = scene.heads()
    if heads is None or channels % heads[1]:
        return ""
    return f" ({heads[1]} heads of {channels // heads[1]})"


def plain_name(node: ast.AST | None, default: str) -> str:
    """Return the last name of ``self.num_heads`` or ``cfg["heads"]``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case _:
            return default


def axis_text(node: ast.expr | None, value: int) -> str:
    """Return an axis as it reads in the code where it is a short name, its value for a number."""
    name = plain_name(node, "")
    if name and role_of(name) not in (Role.HEADS, Role.HEAD_DIM, Role.WIDTH) and len(name) <= 3:
        return name
    return str(value)


def leads_shape(scene: Scene, receiver: object, lead: list[int]) -> bool:
    """Tell whether the first two axes of the new shape are those of a tensor in sight."""
    if isinstance(receiver, torch.Tensor):
        return list(receiver.shape[:2]) == lead
    return any(
        isinstance(v, torch.Tensor) and v.dim() >= 2 and list(v.shape[:2]) == lead
        for v in scene.frame.f_locals.values()
    )
