"""Rewrite the arguments of a call for other sizes: shapes by axis, lengths in masks and ranges."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from mha_lint.targets.words import words

MAKERS = words(
    """randn rand zeros ones empty full randint normal expand view reshape repeat new_zeros
    new_ones"""
)
"""Calls whose integers are the axes of a tensor."""


@dataclass(frozen=True, slots=True)
class NewSizes:
    """Old value -> new value, by what it is. A value that is in none of them stays.

    ``halves``: half a head_dim, as rotary tables have it. ``batch``: stays on a first axis.
    """

    widths: dict[int, int] = field(default_factory=dict)
    heads: dict[int, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    halves: dict[int, int] = field(default_factory=dict)
    batch: int = 0

    def on_axis(self, value: int, axis: int, rank: int) -> int:
        """Return the new length of one axis of a tensor of `rank` axes."""
        if axis == 0 and rank > 1:
            return value if value == self.batch else self.lengths.get(value, value)
        if axis == rank - 1:
            order: tuple[dict[int, int], ...] = (self.widths, self.lengths, self.halves)
        elif rank >= 4 and axis == 1:
            order = (self.heads, self.widths, self.lengths)
        else:
            order = (self.lengths, self.widths, self.heads)
        return next((known[value] for known in order if value in known), value)


def rescale_call(arguments: str, sizes: NewSizes) -> str:
    """Return call arguments with every size replaced that `sizes` knows."""
    call = ast.parse(f"f({arguments})", mode="eval").body
    result = _Rescaler(sizes).visit(call)
    return ast.unparse(ast.fix_missing_locations(result))[2:-1]


class _Rescaler(ast.NodeTransformer):
    def __init__(self, sizes: NewSizes) -> None:
        self.sizes = sizes

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in MAKERS:
            self._shape(node, name)
            node.func = self.visit(node.func)
            node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
            return node
        if name in ("Embedding", "manual_seed"):
            return node
        if name[:1].isupper():  # another instance of the class, whose output is passed
            node.args = [a if isinstance(a, ast.Constant) else self.visit(a) for a in node.args]
            return node
        self.generic_visit(node)
        return node

    def _shape(self, node: ast.Call, name: str) -> None:
        """Rescale the axes among the arguments of a call that makes or reshapes a tensor."""
        start = 0
        if name == "randint":
            start = next((i for i, a in enumerate(node.args) if isinstance(a, ast.Tuple)), 0)
        axes = node.args[start:]
        if axes and isinstance(axes[0], ast.Tuple | ast.List):
            node.args[start] = type(axes[0])(self._axes(axes[0].elts), ast.Load())
        else:
            node.args[start:] = self._axes(axes)

    def _axes(self, axes: list[ast.expr]) -> list[ast.expr]:
        return [self._axis(axis, index, len(axes)) for index, axis in enumerate(axes)]

    def _axis(self, axis: ast.expr, index: int, rank: int) -> ast.expr:
        if isinstance(axis, ast.Constant) and type(axis.value) is int:
            return ast.Constant(self.sizes.on_axis(axis.value, index, rank))
        result = self.visit(axis)
        assert isinstance(result, ast.expr)
        return result

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Keep ``[True] * 4 + [False] * 2`` as long as the new length: the last part grows."""
        if isinstance(node.op, ast.Add):
            first, last = _repeats(node.left), _repeats(node.right)
            if first and last:
                old = first + last
                new = self.sizes.lengths.get(old, old)
                if new > first:
                    assert isinstance(node.right, ast.BinOp)
                    node.right.right = ast.Constant(new - first)
                return node
        if (count := _repeats(node)) and isinstance(node.op, ast.Mult):
            new = self.sizes.lengths.get(count, count)
            return ast.BinOp(node.left, ast.Mult(), ast.Constant(new))
        self.generic_visit(node)
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        """Repeat the last item of a list of constants that is as long as a length."""
        if node.elts and all(map(_is_number, node.elts)):
            new = self.sizes.lengths.get(len(node.elts), len(node.elts))
            items = (node.elts + [node.elts[-1]] * new)[:new]
            whole = all(_is_whole(e) for e in node.elts)
            if whole and len(node.elts) <= 3:  # lengths of samples, not one entry per position
                return ast.List([self.visit(e) for e in node.elts], ast.Load())
            return ast.List(items, ast.Load())
        self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and node.value > 1:
            return ast.Constant(self.sizes.lengths.get(node.value, node.value))
        return node


def _is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_number(node: ast.expr) -> bool:
    """Tell whether `node` is a constant, perhaps with a sign."""
    plain = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(plain, ast.Constant)


def _repeats(node: ast.expr) -> int:
    """Return n of ``[item] * n``, else 0."""
    match node:
        case ast.BinOp(left=ast.List(), op=ast.Mult(), right=ast.Constant(value=int(count))):
            return count
        case _:
            return 0
