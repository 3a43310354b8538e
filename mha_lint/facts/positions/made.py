"""Where in the user's source a linear bias got the steps that it has."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.places import span_of
from mha_lint.facts.positions.origins import made_in
from mha_lint.facts.positions.slopes import CLOSE
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands

LEAST = 2
"""Neighbours that must differ by the step for a tensor to hold the line."""


def line_span(
    bench: Bench, tables: tuple[Node, ...], step: float, heads: int, gain: float
) -> Span | None:
    """Return where neighbours first differ by `step`, above the `tables` that join the scores.

    ``gain``: what the scores and all that was added to them are multiplied by behind the sum.
    """
    node = _first_line(bench, tables, (step, step / gain if gain else step), heads)
    return span_of(node)


def slopes_span(bench: Bench, tables: tuple[Node, ...], slopes: tuple[float, ...]) -> Span | None:
    """Return where one number per head, that are the `slopes`, was first made or kept."""
    due = torch.tensor(sorted(abs(s) for s in slopes), dtype=torch.float64)
    for node in _above(bench, tables):
        value = bench.recording.values.get(node)
        if not isinstance(value, Tensor) or value.numel() != len(due):
            continue
        if not value.is_floating_point():
            continue
        held = value.detach().double().abs().flatten().sort().values
        if not torch.allclose(held, due, rtol=1e-3, atol=0):
            continue
        if node.op == "get_attr":
            declared = declared_at(bench.recording.module, _name(node))
            return made_in(declared) if declared is not None else _read_at(bench, node)
        return span_of(node)
    return None


def _first_line(
    bench: Bench, tables: tuple[Node, ...], steps: tuple[float, ...], heads: int
) -> Node | None:
    for node in _above(bench, tables):
        value = bench.recording.values.get(node)
        if node.op in ("placeholder", "get_attr") or not isinstance(value, Tensor):
            continue
        if not is_number(bench.recording, node) or not value.is_floating_point():
            continue
        if heads > 1 and heads not in value.shape and value.numel() % heads:
            continue
        if any(_holds(value.detach().double(), step) for step in steps):
            return node
    return None


def _holds(value: Tensor, step: float) -> bool:
    """Return whether `LEAST` neighbours in a row along some axis differ by `step`."""
    for axis, count in enumerate(value.shape):
        if count <= LEAST:
            continue
        gaps = value.narrow(axis, 1, count - 1) - value.narrow(axis, 0, count - 1)
        same = (gaps - step).abs() < 10 * CLOSE * abs(step)
        after = same.narrow(axis, 1, count - 2) & same.narrow(axis, 0, count - 2)
        if bool(after.any()):
            return True
    return False


def _above(bench: Bench, tables: tuple[Node, ...]) -> list[Node]:
    order = bench.dependence.order.__getitem__
    return sorted({*bench.dependence.ancestors(tables), *tables}, key=order)


def _name(node: Node) -> str:
    kinds = ("buffer", "constant", "parameter")
    return str(next((node.meta[k] for k in kinds if k in node.meta), node.target))


def _read_at(bench: Bench, node: Node) -> Span | None:
    """Return where what was kept is first used."""
    users = [n for n in bench.dependence.order if node in operands(n)]
    return span_of(users[0]) if users else None
