"""Numbers of axes that an error tells: torch's own words, and those of einsum and einops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mha_lint.targets.infer.errors import Failure
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.state import State

Edits = Iterator[tuple[float, State]]

_TOO_FEW = re.compile(r"Dimension out of range|start_dim cannot come after end_dim")
_OPERAND = re.compile(
    r"subscripts in the equation \((\d+)\) .* dimensions \((\d+)\) for operand (\d+)"
)
_EINOPS = re.compile(r"expected (\d+) dims?\. Received (\d+)-dim")
_UNPACKED = re.compile(r"values to unpack \(expected (\d+)")
_WANTED = re.compile(r"(?:[Ee]xpected|to be|must be) (?:a )?(\d)-?D")


def by_rank(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield states in which an input has another number of axes."""
    if _TOO_FEW.search(failure.message):
        yield from _higher(state, inputs)
    if match := _OPERAND.search(failure.message):
        wanted, actual, operand = map(int, match.groups())
        yield from _exchanged(state, failure, inputs, actual, wanted, _operand(failure, operand))
        return
    if match := _EINOPS.search(failure.message):
        wanted, actual = map(int, match.groups())
        yield from _exchanged(state, failure, inputs, actual, wanted, [])
        return
    rank = None
    if match := _UNPACKED.search(failure.message) or _WANTED.search(failure.message):
        rank = int(match[1])
    if match := re.search(r"same number of dimensions: got (\d) and (\d)", failure.message):
        rank = max(int(match[1]), int(match[2]))
        fewer = {
            n: [o for o in inputs.options(n) if len(o.axes) == rank]
            for n, g in dict(state.inputs or ()).items()
            if g.kind == "float" and len(g.axes) < rank and n in failure.names
        }
        together = state
        for name, fitting in fewer.items():
            if fitting:
                together = together.with_input(name, fitting[0])
        yield 0.1, together
    if rank is None:
        return
    for name, current in dict(state.inputs or ()).items():
        if current.kind == "float" and len(current.axes) != rank:
            fitting = [g for g in inputs.options(name) if len(g.axes) == rank]
            for index, guess in enumerate(fitting):
                extra = 0.0 if name in failure.names else 0.2
                yield 0.1 + 0.2 * index + extra, state.with_input(name, guess)


def _exchanged(
    state: State, failure: Failure, inputs: Inputs, actual: int, wanted: int, named: list[str]
) -> Edits:
    """Yield states in which an input of `actual` axes has `wanted` ones; `named`: who is to blame."""
    offset = wanted - actual
    for name, current in dict(state.inputs or ()).items():
        if current.kind != "float" or (named and name not in named):
            continue
        rank = wanted if len(current.axes) == actual else len(current.axes) + offset
        fitting = [g for g in inputs.options(name) if len(g.axes) == rank]
        for index, guess in enumerate(fitting[:4]):
            extra = 0.0 if name in named or name in failure.names else 0.1
            yield 0.1 + 0.1 * index + extra, state.with_input(name, guess)
    if named:
        yield from ((c + 0.4, s) for c, s in _exchanged(state, failure, inputs, actual, wanted, []))


def _operand(failure: Failure, index: int) -> list[str]:
    """Return the names in the operand `index` of the einsum on the failing line."""
    for line in failure.lines[:2]:
        for call in ast.walk(ast.parse(line)):
            if isinstance(call, ast.Call) and _name(call.func) == "einsum":
                operands = [a for a in call.args if not isinstance(a, ast.Constant | ast.JoinedStr)]
                if index < len(operands):
                    found = ast.walk(operands[index])
                    return [n.id for n in found if isinstance(n, ast.Name)]
    return []


def _name(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _higher(state: State, inputs: Inputs) -> Edits:
    """Give all tensors of the lowest rank one axis more."""
    floats = {n: g for n, g in dict(state.inputs or ()).items() if g.kind == "float"}
    if not floats:
        return
    lowest = min(len(g.axes) for g in floats.values())
    changed = state
    for name, guess in floats.items():
        if len(guess.axes) == lowest:
            more = [g for g in inputs.options(name) if len(g.axes) == lowest + 1]
            if more:
                changed = changed.with_input(name, more[0])
    yield 0.15, changed
