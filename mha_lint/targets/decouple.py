"""Change integers that merely coincide, one at a time: ``WideningMHA(32, 32)`` as (48, 32)."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from mha_lint.targets.current_sizes import build_expression, read_sizes
from mha_lint.targets.infer.vocabulary import Role
from mha_lint.targets.rescale import NewSizes, rescale_call
from mha_lint.targets.slots import BuildExpression, Slot
from mha_lint.targets.subject import Decoupled, Recipe, Subject
from mha_lint.targets.timelimit import TimeLimitError, time_limit

if TYPE_CHECKING:
    from mha_lint.targets.make import FileMaker

MOST_CHANGES = 6
SECONDS = 5.0
_OUTPUT = re.compile(r"out|inner|proj|qk|attn|att_|vdim|v_dim|value|head")
_INPUT = re.compile(r"(^|_)in(_|$)|^in|input|query|src|source|embed|channels")
"""Names of widths that no input has, and that some input has."""
_LENGTH = re.compile(r"len|seq|size_t|time|steps|block|ctx|window|max")
_WIDTHS = (Role.WIDTH, Role.HEAD_DIM, Role.INNER, Role.LENGTH)
"""A width that only makes raw parameters may be taken for a length."""


def decoupled(maker: FileMaker, subject: Subject) -> list[Decoupled]:
    """Change each width that equals another argument's alone, and say what happens."""
    expression = build_expression(subject)
    sizes = read_sizes(subject, expression)
    found: list[Decoupled] = []
    for slot, others in _coincident(expression):
        if len(found) >= MOST_CHANGES:
            break
        new = _other_width(slot.value, sizes.heads)
        stay = ", ".join(other.name for other in others)
        change = f"{slot.name} {slot.value} -> {new}, {stay} stays {slot.value}"
        build = expression.with_values({slot: new})
        found.append(_tried(maker, subject, build, slot, others, new, change))
    return found


def _coincident(expression: BuildExpression) -> list[tuple[Slot, list[Slot]]]:
    widths = [
        s for s in expression.slots
        if s.role in _WIDTHS and s.passed and s.value > 1 and s.name and not _LENGTH.search(s.name)
    ]  # fmt: skip
    found = []
    calls = _calls(expression)
    for slot in widths:
        # Widths of a part and of the whole that holds it must agree: only one call's are free.
        others = [
            o for o in widths
            if o.value == slot.value and o.name != slot.name and calls[o.place] == calls[slot.place]
        ]  # fmt: skip
        if others:
            found.append((slot, others))
    return found


def _calls(expression: BuildExpression) -> dict[int, int]:
    """Return for every node of the expression, by walk order, the innermost call that it stands in."""
    nodes = list(ast.walk(expression.tree))
    numbers = {id(node): index for index, node in enumerate(nodes)}
    found = dict.fromkeys(range(len(nodes)), 0)
    for index, node in enumerate(nodes):  # outer calls come first, so inner ones overwrite
        if isinstance(node, ast.Call):
            for inner in ast.walk(node):
                found[numbers[id(inner)]] = index
    return found


def _other_width(value: int, heads: int | None) -> int:
    """Return a width half as large again that the heads still divide."""
    step = heads or 2
    new = (value * 3 // 2) // step * step
    return new if new > value else value + step * 2


def _tried(
    maker: FileMaker,
    subject: Subject,
    build: str,
    slot: Slot,
    others: list[Slot],
    new: int,
    change: str,
) -> Decoupled:
    """Build and call with the input following the changed width, and with it staying.

    When neither runs, the error of the likelier way is told.
    """
    follows = rescale_call(subject.call, NewSizes(widths={slot.value: new}))
    calls = [follows, subject.call]
    own, other = slot.name.lower(), " ".join(o.name.lower() for o in others)
    stays = _OUTPUT.search(own) or (_INPUT.search(other) and not _INPUT.search(own))
    if stays or slot.role is Role.HEAD_DIM:
        calls.reverse()
    calls += _one_by_one(subject, slot, new)
    errors: list[BaseException] = []
    for call in dict.fromkeys(calls):
        call = call.replace(subject.build, build)
        try:
            with time_limit(SECONDS):
                made = maker.make(Recipe(build, call, subject.recipe.how))
        except TimeLimitError as error:
            return Decoupled(change, error, None)
        except Exception as error:
            errors.append(getattr(error, "error", error))
        else:
            return Decoupled(change, None, made)
    return Decoupled(change, errors[0], None)


def _one_by_one(subject: Subject, slot: Slot, new: int) -> list[str]:
    """Return calls in which the width of only one argument changes."""
    call = ast.parse(f"f({subject.call})", mode="eval").body
    assert isinstance(call, ast.Call)
    parts = [ast.unparse(a) for a in call.args]
    parts += [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg]
    if len(parts) < 2 or any(isinstance(n, ast.NamedExpr) for n in ast.walk(call)):
        return []
    found = []
    for index, part in enumerate(parts):
        changed = rescale_call(part, NewSizes(widths={slot.value: new}))
        if changed != part:
            found.append(", ".join([*parts[:index], changed, *parts[index + 1 :]]))
    return found
