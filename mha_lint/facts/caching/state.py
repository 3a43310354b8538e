"""Whether a call leaves something behind that changes the next one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.capture.copies import copied
from mha_lint.capture.redraw import redrawn
from mha_lint.capture.state import SEED, seeded
from mha_lint.facts.bench import Bench
from mha_lint.facts.caching.arguments import tensors
from mha_lint.facts.classes import class_sources
from mha_lint.model.causal_facts import StateCheck
from mha_lint.model.facts import Fact, Known, NotApplicable
from mha_lint.model.source import Span
from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.subject import Subject

SWITCHES = re.compile(r"use_cache|streaming|incremental|stateful|online|use_kv|keep_state|use_mem")
CHANGING = frozenset(["append", "extend", "update", "add", "pop", "insert", "appendleft"])
"""Methods of containers that change them."""
SAME = 1e-5
"""Relative: two equal calls give equal numbers, but for sums in another order."""


@dataclass(slots=True)
class _Listening:
    """Calls a module and keeps what it returned; with `after_another`, on other inputs first.

    The other inputs matter: keys that come in twice leave the weighted mean of the values alone.
    """

    module: Any
    after_another: bool = False
    output: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.after_another:
            other = copied(len, args, kwargs)
            generator = torch.Generator().manual_seed(3)
            self.module(
                *_other_inputs(other.args, generator), **_other_inputs(other.kwargs, generator)
            )
            seeded(SEED)
        self.output = self.module(*args, **kwargs)
        return self.output


def _other_inputs(value: Any, generator: torch.Generator) -> Any:
    if isinstance(value, Tensor):
        return redrawn(value, generator)
    if type(value) in (list, tuple):
        return type(value)([_other_inputs(v, generator) for v in value])
    if type(value) is dict:
        return {k: _other_inputs(v, generator) for k, v in value.items()}
    return value


def state_of(subject: Subject, bench: Bench) -> Fact[StateCheck]:
    """Return what one call of a module made anew changes for a second, equal one."""
    maker = subject.maker
    if not isinstance(subject.module, nn.Module):
        return NotApplicable("a function keeps nothing")
    if not isinstance(maker, FileMaker):
        return NotApplicable("the module cannot be made anew")
    if not may_keep(subject.module):
        return Known(StateCheck(), "the module assigns nothing of its own while it runs")
    try:
        with maker.environment():
            once = _Listening(maker.build(subject.build))
            seeded(SEED)
            maker.evaluate(subject.recipe, built=once)
            twice = _Listening(maker.build(subject.build), after_another=True)
            before = _held(twice.module)
            maker.evaluate(subject.recipe, built=twice)
            changed = [n for n, v in _held(twice.module).items() if _other(before.get(n), v)]
    except StageError as error:
        return NotApplicable(f"the module cannot be called after another call: {error}")
    del bench
    gap = _gap(_numbers(once.output), _numbers(twice.output))
    if gap is None:
        return Known(StateCheck(), "a call on other inputs leaves the result of the next one alone")
    name = _to_blame(changed, twice.module)
    span, documented = _written_at(twice.module, name)
    return Known(
        StateCheck(True, gap, name, span, documented),
        "the module was made anew, and called once at once and once after a call on other inputs",
    )


def may_keep(module: nn.Module) -> bool:
    """Return whether some class of the user assigns to itself, or changes what it holds, in a call."""
    return any(
        _changes_self(node)
        for cls in {type(m) for m in module.modules()}
        for source in class_sources(cls)
        for part in source.node.body
        if isinstance(part, ast.FunctionDef) and part.name != "__init__"
        for node in ast.walk(part)
    )


def _changes_self(node: ast.AST) -> str:
    """Return the attribute of self that `node` assigns or changes in place, "" for none."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in CHANGING or (name.endswith("_") and not name.startswith("__")):
            targets = [node.func.value]
    elif _is_setattr(node):
        assert isinstance(node, ast.Call)
        return str(getattr(node.args[1], "value", "")) or "?"
    for target in targets:
        one = target
        while isinstance(one, ast.Subscript):
            one = one.value
        while isinstance(one, ast.Attribute):
            if isinstance(one.value, ast.Name) and one.value.id == "self":
                return one.attr
            one = one.value
    return ""


def _is_setattr(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "setattr"
        and len(node.args) > 1
    )


def _numbers(output: Any) -> list[Tensor]:
    return [t.detach().clone() for t in tensors(output) if t.is_floating_point()]


def _gap(one: list[Tensor], other: list[Tensor]) -> float | None:
    """Return the largest difference of the main output, None where it is the same."""
    if not one or not other:
        return None
    a, b = one[0], other[0]
    if a.shape != b.shape:
        return float("inf")
    if bool((a.isnan() != b.isnan()).any()):
        return float("inf")
    gap = (a - b).abs().nan_to_num(nan=0.0).max() if a.numel() else torch.tensor(0.0)
    size = a.abs().nan_to_num(nan=0.0).max() if a.numel() else torch.tensor(1.0)
    return float(gap) if bool(gap > SAME * size.clamp(min=1e-6)) else None


def _held(module: nn.Module) -> dict[str, Any]:
    """Return copies of the buffers and plain attributes of all parts of `module`, by qualified name."""
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in [*part._buffers.items(), *vars(part).items()]:
            if name.startswith("_") and name in vars(nn.Module()):
                continue
            found[prefix + name] = _snapshot(value)
    return found


def _snapshot(value: Any, depth: int = 3) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, int | float | str | bool | None):
        return value
    if depth and isinstance(value, list | tuple):
        return [_snapshot(v, depth - 1) for v in value]
    if depth and isinstance(value, dict):
        return {str(k): _snapshot(v, depth - 1) for k, v in value.items()}
    if depth and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type):
        return {k: _snapshot(v, depth - 1) for k, v in vars(value).items()}
    return None


def _other(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return one.shape != two.shape or not torch.equal(one, two)
    if type(one) is not type(two):
        return True
    if isinstance(one, list):
        return len(one) != len(two) or any(_other(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, dict):
        return set(one) != set(two) or any(_other(one[k], two[k]) for k in one)
    return bool(one != two)


def _to_blame(changed: list[str], module: nn.Module) -> str:
    """Return the changed attribute that most likely matters: a tensor or list, else a number."""
    held = _held(module)
    big = [n for n in changed if isinstance(held.get(n), Tensor | list | dict)]
    return (big or changed or [""])[0]


def _written_at(module: nn.Module, name: str) -> tuple[Span | None, str]:
    """Return where the attribute is written in a call, and what shows that it is kept on purpose."""
    path, _, attribute = name.rpartition(".")
    owner = module
    for part in path.split(".") if path else []:
        owner = getattr(owner, part, owner)
    if not attribute:
        return None, ""
    written: list[tuple[str, Span]] = []
    called: set[str] = set()
    for source in class_sources(type(owner)):
        for method in source.node.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            for node in ast.walk(method):
                if method.name != "__init__":
                    called |= _own_methods_called(node)
                if _changes_self(node) == attribute and isinstance(node, ast.stmt | ast.expr):
                    end = node.end_lineno or node.lineno
                    column = (node.end_col_offset or 0) + 1
                    span = Span(source.path, node.lineno, node.col_offset + 1, end, column)
                    written.append((method.name, span))
    inside = [s for n, s in written if n == "forward" or n in called]
    apart = [n for n, _ in written if n not in ("__init__", "forward") and n not in called]
    switch = next((n for m in (module, owner) for n in vars(m) if SWITCHES.search(n)), "")
    return inside[0] if inside else None, f"{apart[0]}()" if apart else switch


def _own_methods_called(node: ast.AST) -> set[str]:
    """Return the method of self that `node` calls."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    ):
        return {node.func.attr}
    return set()
