"""Where in the user's code an error arose: the failing expression, and the values around it."""

from __future__ import annotations

import ast
import traceback
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import torch

from mha_lint.model.source import Span
from mha_lint.targets.infer.errors import is_user_file
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.source import SourceError, cached_source
from mha_lint.targets.words import words

_HARMLESS = words(
    """transpose permute contiguous size mT T flatten swapaxes unsqueeze squeeze matmul bmm t dim"""
)
"""Methods that can be called again without any effect."""


@dataclass(slots=True)
class Scene:
    """The innermost user frame of an error. ``node``: the expression that failed; ``statement``: the
    statement around it; ``parents``: what encloses each node; ``inner``: torch frames inside it;
    ``outermost``: the first user frame, of what was called.
    """

    frame: FrameType
    span: Span
    node: ast.AST
    statement: ast.stmt
    parents: dict[int, ast.AST]
    inner: list[FrameType]
    outermost: FrameType

    def value(self, node: ast.AST | None) -> Any:
        """Evaluate an expression that has no effects; None where it has any, or fails."""
        if not isinstance(node, ast.expr) or not _is_harmless(node):
            return None
        try:
            code = compile(ast.Expression(node), "<mha-lint>", "eval")
            with torch.no_grad():
                return eval(code, self.frame.f_globals, dict(self.frame.f_locals))
        except Exception:  # the value is only wished for
            return None

    def integer(self, node: ast.AST | None) -> int | None:
        """Return the value of `node` if it is an int."""
        value = self.value(node)
        return value if type(value) is int else None

    def named(self) -> dict[str, int]:
        """Return the ints in sight by plain name: locals, and attributes of ``self``."""
        found: dict[str, int] = {}
        owner = self.frame.f_locals.get("self")
        if owner is not None:
            for name, value in vars(owner).items():
                if type(value) is int:
                    found[name] = value
            config = [v for k, v in vars(owner).items() if role_of(k) is Role.CONFIG]
            for holder in config:
                for name, value in getattr(holder, "__dict__", {}).items():
                    if type(value) is int:
                        found.setdefault(name, value)
        for name, value in self.frame.f_locals.items():
            if type(value) is int:
                found[name] = value
        return found

    def heads(self) -> tuple[str, int] | None:
        """Return name and value of the head count in sight."""
        return next(
            ((n, v) for n, v in self.named().items() if role_of(n) is Role.HEADS and v > 0), None
        )

    def name_of(self, value: int, *roles: Role, default: str) -> str:
        """Return the name of an int in sight with this value and one of `roles`."""
        names = [n for n, v in self.named().items() if v == value and role_of(n) in roles]
        return names[0] if names else default

    def is_own_input(self, node: ast.AST | None) -> bool:
        """Tell whether `node` is an argument of the outermost ``forward``, as it was passed."""
        if not isinstance(node, ast.Name):
            return False
        code = self.frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return node.id in names


def scene_of(error: BaseException, home: str = "") -> Scene | None:
    """Return the innermost frame of the user in the traceback of `error`, or None."""
    best: TracebackType | None = None
    first: TracebackType | None = None
    trace = error.__traceback__
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename, home):
            best = trace
            first = first or trace
        trace = trace.tb_next
    if best is None or first is None:
        return None
    frame = best.tb_frame
    path = frame.f_code.co_filename
    try:
        tree = cached_source(path).tree
    except SourceError:
        return None
    summary = traceback.extract_tb(best, limit=1)[0]
    line, column = summary.lineno or 1, summary.colno or 0
    end_line, end_column = summary.end_lineno or line, summary.end_colno or 0
    parents = {
        id(child): parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)
    }
    node: ast.AST | None = None
    for candidate in ast.walk(tree):
        position = (
            getattr(candidate, "lineno", None), getattr(candidate, "col_offset", None),
            getattr(candidate, "end_lineno", None), getattr(candidate, "end_col_offset", None),
        )  # fmt: skip
        if position == (line, column, end_line, end_column):
            node = candidate
            if isinstance(candidate, ast.Call | ast.BinOp | ast.AugAssign | ast.stmt):
                break
    if node is None:
        return None
    statement: ast.AST = node
    while not isinstance(statement, ast.stmt):
        statement = parents[id(statement)]
    inner, trace = [], best.tb_next
    while trace is not None:
        inner.append(trace.tb_frame)
        trace = trace.tb_next
    span = Span(path, line, column + 1, end_line, end_column + 1)
    return Scene(frame, span, node, statement, parents, inner, first.tb_frame)


def _is_harmless(node: ast.expr) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            name = getattr(part.func, "attr", getattr(part.func, "id", ""))
            if name not in _HARMLESS and name not in ("int", "len", "max", "min", "prod"):
                return False
        elif isinstance(
            part, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda | ast.ListComp
        ):
            return False
    return True
