"""Change integers that merely coincide, one at a time: ``WideningMHA(32, 32)`` as (48, 32)."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

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
    products = _products(expression)
    unnamed = [] if products else _unnamed_products(expression)
    for slot, others in [*_coincident(expression), *products, *unnamed]:
        if len(found) >= MOST_CHANGES:
            break
        new = _other_width(slot.value, sizes.heads)
        stay = ", ".join(other.name for other in others)
        change = f"{slot.name} {slot.value} -> {new}, {stay} stays {others[0].value}"
        build = expression.with_values({slot: new})
        made = _tried(maker, subject, build, slot, others, new, change)
        found.append(dataclasses.replace(made, doubtful=(slot, others) in unnamed))
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


def _products(expression: BuildExpression) -> list[tuple[Slot, list[Slot]]]:
    """Return each head width that, times the number of heads, happens to be another width."""
    calls = _calls(expression)
    by_role = {
        role: [s for s in expression.slots if s.role is role and s.name and s.value > 1]
        for role in (Role.HEADS, Role.HEAD_DIM, Role.WIDTH)
    }
    found = []
    for slot in by_role[Role.HEAD_DIM]:
        products = {s.value * slot.value for s in by_role[Role.HEADS]}
        others = [
            o
            for o in by_role[Role.WIDTH]
            if o.value in products and calls[o.place] == calls[slot.place]
        ]
        if others:
            found.append((slot, others[:1]))
    return found


def _unnamed_products(expression: BuildExpression) -> list[tuple[Slot, list[Slot]]]:
    """Return both factors of each width that is the product of two numbers of unknown meaning."""
    calls = _calls(expression)
    passed = [s for s in expression.slots if s.passed and s.name and s.value > 1]
    factors = [s for s in passed if s.role in (None, Role.HEADS, Role.HEAD_DIM)]
    found = []
    for wide in (s for s in passed if s.role is Role.WIDTH):
        own = [s for s in factors if calls[s.place] == calls[wide.place]]
        pairs = [p for p in itertools.combinations(own, 2) if p[0].value * p[1].value == wide.value]
        found += [(slot, [wide]) for slot in itertools.chain.from_iterable(pairs[:1])]
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

    When no call runs, the error of the likeliest is told: where layers read the inputs as they
    come, that in which every input has the width of its layers.
    """
    follows = rescale_call(subject.call, NewSizes(widths={slot.value: new}))
    calls = [follows, subject.call]
    own, other = slot.name.lower(), " ".join(o.name.lower() for o in others)
    stays = _OUTPUT.search(own) or (_INPUT.search(other) and not _INPUT.search(own))
    if stays or slot.role is Role.HEAD_DIM:
        calls.reverse()
    calls += _one_by_one(subject, slot, new)
    if (fitting := _fitting(maker, subject, build, slot, new)) is not None:
        calls.insert(0, fitting)
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
    """Return calls in which the width of only one argument changes, or of all but one."""
    parts = _parts(subject.call)
    changed = [rescale_call(part, NewSizes(widths={slot.value: new})) for part in parts]
    wide = [i for i, (one, other) in enumerate(zip(parts, changed, strict=True)) if one != other]
    if len(parts) < 2:
        return []
    alone = [", ".join([*parts[:i], changed[i], *parts[i + 1 :]]) for i in wide]
    others = [", ".join([*changed[:i], parts[i], *changed[i + 1 :]]) for i in wide]
    return alone + (others if len(wide) > 2 else [])


def _parts(call: str) -> list[str]:
    """Return the arguments of a call one by one; none where one of them names another."""
    tree = ast.parse(f"f({call})", mode="eval").body
    assert isinstance(tree, ast.Call)
    if any(isinstance(n, ast.NamedExpr) for n in ast.walk(tree)):
        return []
    parts = [ast.unparse(a) for a in tree.args]
    return parts + [f"{k.arg}={ast.unparse(k.value)}" for k in tree.keywords if k.arg]


def _fitting(maker: FileMaker, subject: Subject, build: str, slot: Slot, new: int) -> str | None:
    """Return the call in which every input has the width of the layers that read it as it comes.

    None where that is not known of every input that has the old width.
    """
    parts = _parts(subject.call)
    inputs = [*subject.args, *subject.kwargs.values()]
    if len(parts) < 2 or len(parts) != len(inputs):
        return None
    try:
        with maker.environment(), time_limit(SECONDS):
            made = maker.build(build)
            readers = _readers(subject)
    except (Exception, TimeLimitError):  # then the error of building is told
        return None
    layers = dict(made.named_modules()) if isinstance(made, nn.Module) else {}
    chosen: list[str] = []
    for part, value, names in zip(parts, inputs, readers, strict=True):
        widths = {_width_of(layers.get(name)) for name in names}
        wide = isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[-1] == slot.value
        if wide and widths not in ({new}, {slot.value}):
            return None
        changed = rescale_call(part, NewSizes(widths={slot.value: new}))
        chosen.append(changed if widths == {new} else part)
    return ", ".join(chosen)


def _readers(subject: Subject) -> list[set[str]]:
    """Return for every input of the call the names of the layers that read it as it comes."""
    again = subject.rebuilt()
    found: dict[int, set[str]] = {}
    if isinstance(again.module, nn.Module):
        for name, part in again.module.named_modules():
            if _width_of(part) is not None:
                part.register_forward_pre_hook(_noting(found, name))
        with torch.no_grad():
            again.module(*again.args, **again.kwargs)
    return [found.get(id(value), set()) for value in (*again.args, *again.kwargs.values())]


def _noting(found: dict[int, set[str]], name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        if given:
            found.setdefault(id(given[0]), set()).add(name)

    return note


def _width_of(layer: nn.Module | None) -> int | None:
    match layer:
        case nn.Linear():
            return layer.in_features
        case nn.LayerNorm():
            return layer.normalized_shape[-1]
        case _:
            return None
