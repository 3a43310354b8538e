"""Rewrite the arguments of a call for other sizes: shapes by axis, lengths in masks and ranges."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from mha_lint.targets.words import words

MAKERS = words(
    """randn rand zeros ones empty full randint normal expand view reshape repeat new_zeros
    new_ones"""
)
"""Calls whose integers are the axes of a tensor."""
RANDOM = words("randn rand normal")
"""Those that make data, not masks."""


@dataclass(frozen=True, slots=True)
class NewSizes:
    """Old value -> new value, by what it is. A value that is in none of them stays.

    ``halves``: half a head_dim, as rotary tables have it. ``batch``: stays on a first axis.
    ``untied``: sizes that are equal by chance are told apart by where they stand, so (T_q, T_k)
    is a mask. ``keys``: lengths of what is attended to, where they part from those of the
    first argument.
    """

    widths: dict[int, int] = field(default_factory=dict)
    heads: dict[int, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    halves: dict[int, int] = field(default_factory=dict)
    batch: int = 0
    untied: bool = False
    keys: dict[int, int] = field(default_factory=dict)

    def on_axis(self, axis: int, shape: Sequence[int | None], *, random: bool, later: bool) -> int:
        """Return the new length of one axis of a tensor of `shape` (None: not written out).

        `random`: the tensor holds random numbers, `later`: it stands behind another argument.
        """
        value, rank = shape[axis], len(shape)
        assert value is not None
        of_keys = {**self.lengths, **self.keys}
        along = of_keys if later else self.lengths
        if self.untied and axis >= rank - 2 and self._is_mask(shape, random=random):
            return (of_keys if axis == rank - 1 else self.lengths)[value]
        if axis == 0 and rank > 1:
            return value if value == self.batch else along.get(value, value)
        if axis == rank - 1:
            order: tuple[dict[int, int], ...] = (self.widths, along, self.halves)
        elif rank >= 4 and axis == 1:
            order = (self.heads, self.widths, along)
        else:
            order = (along, self.widths, self.heads)
        return next((known[value] for known in order if value in known), value)

    def _is_mask(self, shape: Sequence[int | None], *, random: bool) -> bool:
        """Return whether both of the last two axes count positions."""
        if len(shape) < 2 or not {shape[-1], shape[-2]} <= set(self.lengths):
            return False
        return not random or (len(shape) > 3 and shape[-1] == shape[-2])


def rescale_call(arguments: str, sizes: NewSizes) -> str:
    """Return call arguments with every size replaced that `sizes` knows."""
    call = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    rescaler = _Rescaler(sizes)
    call.args = [rescaler.argument(a) for a in call.args]
    for keyword in call.keywords:
        keyword.value = rescaler.argument(keyword.value)
    return ast.unparse(ast.fix_missing_locations(call))[2:-1]


class _Rescaler(ast.NodeTransformer):
    """``later``: a tensor of three or more axes has been made for an argument before."""

    def __init__(self, sizes: NewSizes) -> None:
        self.sizes = sizes
        self.later = False
        self._made = False

    def argument(self, argument: ast.expr) -> ast.expr:
        """Return one argument of the call, rescaled."""
        result = self.visit(argument)
        assert isinstance(result, ast.expr)
        self.later = self._made
        return result

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
        random = name in RANDOM
        if axes and isinstance(axes[0], ast.Tuple | ast.List):
            node.args[start] = type(axes[0])(self._axes(axes[0].elts, random), ast.Load())
        else:
            node.args[start:] = self._axes(axes, random)

    def _axes(self, axes: list[ast.expr], random: bool) -> list[ast.expr]:
        shape = [_whole(axis) for axis in axes]
        self._made = self._made or len(shape) > 2
        found: list[ast.expr] = []
        for index, axis in enumerate(axes):
            if shape[index] is None:
                found.append(self.visit(axis))
                continue
            new = self.sizes.on_axis(index, shape, random=random, later=self.later)
            found.append(ast.Constant(new))
        return found

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
    return _whole(node) is not None


def _whole(node: ast.expr) -> int | None:
    """Return the integer that is written there, else None."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int else None


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
