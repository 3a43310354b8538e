"""What right attention may have besides: rotations, norms of q and k, soft-capping, biases, windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.fuzz.layouts import aligned
from tests.fuzz.plan import Plan

CAP = 7.0
WINDOW = 3


def draw_extras(p: Plan, layout: str) -> None:
    """Choose the extras that go with the plan; faults of other stages are planted without most."""
    self_written = not p.cross and p.packaging != "function"
    may_turn = self_written and p.dk % 2 == 0 and p.fault is None
    planted = p.is_fault("rotated values", "rotated on one side")
    if planted or (may_turn and p.choices.chance("rope", 5)):
        p.extras.add("rope")
    if p.packaging != "function" and p.fault is None and p.choices.chance("norms", 6):
        p.extras.add("norms")
    if p.form == "open" and p.fault is None:
        if p.choices.chance("cap", 7):
            p.extras.add("cap")
        if self_written and "x" not in layout and p.choices.chance("learned bias", 7):
            p.extras.add("learned bias")
        if not p.cross and not p.padding and not p.causal and p.choices.chance("window", 7):
            p.extras.add("window")
        if p.packaging == "class" and p.choices.chance("weights returned", 6):
            p.extras.add("weights returned")


def before_scores(p: Plan, role: str, axes: str, length: str) -> None:
    """Write what happens to q or k (of v where a fault says so) once it is split into heads."""
    local = p.names[role]
    if "norms" in p.extras and role != "v":
        kind = p.pick(
            "norm", ["nn.LayerNorm(<dk>)", "nn.RMSNorm(<dk>)", "nn.LayerNorm(<dk>, bias=False)"]
        )
        p.write(f"{local} = {p.attribute(f'{role}_norm', kind)}({local})")
    turns = role == "q" or not p.is_fault("rotated on one side")
    if "rope" in p.extras and turns and (role != "v" or p.is_fault("rotated values")):
        _rotate(p, local, axes, length)


def _rotate(p: Plan, local: str, axes: str, length: str) -> None:
    kind = p.names.setdefault("rope", p.pick("rope kind", ["half", "pairs", "complex"]))
    dk = p.size("dk")
    if "angles" not in p.names:
        p.names["angles"] = "angles"
        p.write(f"rates = 10000.0 ** (-torch.arange(0, {dk}, 2).to({local}.dtype) / {dk})")
        where = p.pick("angles", [
            f"torch.arange({length}).to({local}.dtype)[:, None] * rates",
            f"torch.outer(torch.arange({length}).to({local}.dtype), rates)",
            f'torch.einsum("i,j->ij", torch.arange({length}).to({local}.dtype), rates)',
        ])  # fmt: skip
        p.write(f"angles = {where}")
        if kind == "half":
            p.write("angles = torch.cat([angles, angles], dim=-1)")
        if kind == "complex":
            p.write("turn = torch.polar(torch.ones_like(angles), angles)")
        else:
            p.write("cos, sin = angles.cos(), angles.sin()")
    target = axes.replace("x", "b")
    if kind == "complex":
        p.write(f"{local} = torch.view_as_complex({local}.unflatten(-1, (-1, 2)).contiguous())")
        p.write(
            f"{local} = torch.view_as_real({local} * {aligned('turn', 'td', target)}).flatten(-2)",
            "rope",
        )
        return
    cos, sin = aligned("cos", "td", target), aligned("sin", "td", target)
    if kind == "half":
        p.write(f"one, two = {local}.chunk(2, dim=-1)")
        p.write(f"{local} = {local} * {cos} + torch.cat([-two, one], dim=-1) * {sin}", "rope")
        return
    p.write(f"one, two = {local}[..., ::2], {local}[..., 1::2]")
    p.write(
        f"{local} = torch.stack([one * {cos} - two * {sin}, one * {sin} + two * {cos}], dim=-1).flatten(-2)",
        "rope",
    )


def on_scores(p: Plan, scores: str, axes: str) -> None:
    """Write what happens to the scaled scores before masks."""
    if "cap" in p.extras:
        ways = [
            f"{scores} = {CAP} * torch.tanh({scores} / {CAP})",
            f"{scores} = ({scores} / {CAP}).tanh() * {CAP}",
        ]
        p.write(p.pick("cap way", ways))
    if "learned bias" in p.extras:
        table = p.attribute("table", "nn.Parameter(torch.randn(<h>, 64, 64) * 0.5)")
        p.write(f"{scores} = {scores} + {aligned(f'{table}[:, :T, :T]', 'hqk', axes)}")


def window(p: Plan) -> tuple[str, str]:
    """Write a window mask; return its name and sense."""
    p.write("steps = torch.arange(T)")
    hidden = p.choices.chance("window hides")
    gap = "(steps[:, None] - steps[None, :]).abs()"
    p.write(f"near = {gap} {'>=' if hidden else '<'} {WINDOW}")
    return "near", "hide" if hidden else "keep"


# --- the same, for the reference -------------------------------------------------------------------


def turned(p: Plan, m: Any, role: str, x: Tensor) -> Tensor:
    """Return q or k (B, h, T, d) as the extras make it."""
    if "norms" in p.extras:
        x = getattr(m, f"{role}_norm")(x)
    if "rope" not in p.extras:
        return x
    d = x.shape[-1]
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    cos, sin = angles.cos(), angles.sin()
    if p.names["rope"] == "half":
        one, two = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat([one * cos - two * sin, one * sin + two * cos], dim=-1)
    one, two = x[..., ::2], x[..., 1::2]
    return torch.stack([one * cos - two * sin, one * sin + two * cos], dim=-1).flatten(-2)


def biased(p: Plan, m: Any, scores: Tensor) -> Tensor:
    """Return scores (B, h, T, T) as the extras make them."""
    if "cap" in p.extras:
        scores = CAP * torch.tanh(scores / CAP)
    if "learned bias" in p.extras:
        scores = scores + m.table[:, : p.tq, : p.tq]
    if "window" in p.extras:
        places = torch.arange(p.tq)
        far = (places[:, None] - places[None, :]).abs() >= WINDOW
        scores = scores.masked_fill(far, -torch.inf)
    return scores
