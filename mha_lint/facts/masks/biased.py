"""Masks that were added to a learned bias before both meet the scores."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.fx import Node

from mha_lint.capture.names import RANDOM
from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.origins import PASSING
from mha_lint.facts.masks.played import Runs
from mha_lint.facts.masks.steps import Step
from mha_lint.sites.dependence import is_number, is_tensor, op, operands


def beside_learned(bench: Bench, step: Step) -> tuple[Node, list[Node], list[Node]] | None:
    """Return the sum in which a mask meets a learned bias, its masks and its learned parts."""
    if step.how != "added" or len(step.sides) != 1:
        return None
    masks: list[Node] = []
    node = step.sides[0]
    joined: Node | None = None
    while bench.dependence.parameters(node):
        tensors = [n for n in operands(node) if is_tensor(bench.recording, n)]
        if op(node) in PASSING and tensors:
            node = tensors[0]
            continue
        if op(node) not in ("add", "sub"):
            break
        learned = [n for n in tensors if bench.dependence.parameters(n)]
        plain = [n for n in tensors if not bench.dependence.parameters(n)]
        if len(learned) != 1 or not plain:
            break
        masks += plain
        joined, node = node, learned[0]
    drawn = any(op(n) in RANDOM for n in bench.dependence.ancestors(masks))
    if joined is None or drawn or not is_number(bench.recording, node):
        return None
    return joined, masks, [node]


def mask_beside_learned(bench: Bench, run: Runs, step: Step) -> Step | None:
    """Return the part of `step` that a mask has in it, measured with the learned bias at 0."""
    found = beside_learned(bench, step)
    if found is None:
        return None
    joined, masks, learned = found
    nothing = {n: torch.zeros_like(run.base(n)) for n in learned}
    data = torch.as_tensor(run.base(step.data))
    (offset,) = run.run([step.node], {**nothing, step.data: torch.zeros_like(data)})
    gain = torch.isfinite(offset).to(offset.dtype)
    return replace(step, sides=tuple(masks), gain=gain, offset=offset, joined=joined)
