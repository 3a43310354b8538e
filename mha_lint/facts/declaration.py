"""Where a parameter or submodule is declared in the user's source, found by ast."""

from __future__ import annotations

import ast
from typing import Any

from mha_lint.facts.classes import class_sources
from mha_lint.model.source import Span


def declared_at(module: Any, name: str) -> Span | None:
    """Return the assignment ``self.<attribute> = ...`` that holds the parameter or module `name`.

    `name` is qualified ("blocks.0.attn.q.weight"): the innermost owner whose class the user wrote
    is asked first.
    """
    if module is None:
        return None
    parts = name.split(".")
    owners: list[tuple[Any, str]] = []
    current = module
    for part in parts:
        owners.append((current, part))
        current = _part(current, part)
        if current is None:
            break
    for owner, attribute in reversed(owners):
        if type(owner).__module__.startswith("torch."):
            continue
        span = _assignment(type(owner), attribute)
        if span is not None:
            return span
    return None


def _part(owner: Any, name: str) -> Any:
    """Return the module or parameter `name` of `owner`, which may be a list of them."""
    held = getattr(owner, "_modules", {}).get(name)
    if held is not None:
        return held
    if not name.isdigit():
        return getattr(owner, name, None)
    try:
        return list(owner.children())[int(name)]
    except (AttributeError, IndexError):
        return None


def _assignment(cls: type, attribute: str) -> Span | None:
    """Return the first assignment to ``self.attribute`` in `cls` or its bases."""
    for source in class_sources(cls):
        for node in ast.walk(source.node):
            for name, at in _targets(node):
                if name == attribute:
                    end = at.end_lineno or at.lineno
                    return Span(
                        source.path, at.lineno, at.col_offset + 1, end, (at.end_col_offset or 0) + 1
                    )
    return None


def _targets(node: ast.AST) -> list[tuple[str, ast.stmt]]:
    if isinstance(node, ast.Assign):
        flat = [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
        return [(t.attr, node) for t in flat if isinstance(t, ast.Attribute) and _is_self(t.value)]
    if (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and _is_self(node.target.value)
    ):
        return [(node.target.attr, node)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr
            in ("register_parameter", "register_buffer", "add_module", "register_module")
            and call.args
            and isinstance(call.args[0], ast.Constant)
        ):
            return [(str(call.args[0].value), node)]
    return []


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name)
