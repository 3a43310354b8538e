"""The integers of a build expression, each with its name: what can be changed to make another size.

A slot is an integer that stands in the expression, or the default of an argument that it leaves
out, of the class itself or of a config class that it constructs.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mha_lint.targets.infer.bodies import constructor_evidence
from mha_lint.targets.infer.uses import Evidence
from mha_lint.targets.infer.vocabulary import Role, role_of

RESIZABLE = frozenset(
    {
        Role.WIDTH,
        Role.HEADS,
        Role.KV_HEADS,
        Role.HEAD_DIM,
        Role.INNER,
        Role.LENGTH,
        Role.SOURCE,
        Role.LAYERS,
        Role.VOCABULARY,
    }
)
"""Roles of the defaults that are slots too."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One integer. ``place``: the index of its node in walk order, or of the call that leaves the
    argument out; ``passed``: it stands in the expression.
    """

    name: str
    value: int
    role: Role | None
    place: int
    passed: bool
    attribute: bool = False
    """The default is a plain class attribute, to be set on the instance."""


class BuildExpression:
    """A build expression and its slots.

    ``input_widths``: lengths of the last axes of the inputs; an argument of unknown meaning that
    equals one of them is taken for a width.
    """

    def __init__(
        self, text: str, namespace: dict[str, Any], input_widths: Iterable[int] = ()
    ) -> None:
        """Parse `text`, whose names `namespace` holds."""
        self.text = text
        self.tree = ast.parse(text, mode="eval")
        self.namespace = namespace
        self.inputs = frozenset(input_widths)
        self.slots = [self._with_role(slot) for slot in self._slots()]

    def with_values(self, values: dict[Slot, int]) -> str:
        """Return the expression with the integers of some slots changed."""
        tree = copy.deepcopy(self.tree)
        nodes = list(ast.walk(tree))
        wrapped: dict[int, list[Slot]] = {}
        for slot, value in values.items():
            node = nodes[slot.place]
            if slot.passed:
                assert isinstance(node, ast.Constant)
                node.value = value
            elif slot.attribute:
                wrapped.setdefault(slot.place, []).append(slot)
            else:
                assert isinstance(node, ast.Call)
                node.keywords.append(ast.keyword(slot.name, ast.Constant(value)))
        for place, slots in wrapped.items():
            _set_attributes(nodes[place], {s.name: values[s] for s in slots})
        return ast.unparse(ast.fix_missing_locations(tree))

    def _with_role(self, slot: Slot) -> Slot:
        role = slot.role
        if slot.name in self.evidence and role in (None, Role.LAYERS, Role.COUNT, Role.INDEX):
            role = self.evidence[slot.name].role() or role
        if role is None and slot.name and slot.value in self.inputs:
            role = Role.WIDTH
        return dataclasses.replace(slot, role=role)

    @functools.cached_property
    def evidence(self) -> Mapping[str, Evidence]:
        """Return what the constructor does with its parameters."""
        body = self.tree.body
        made = self._called(body.func) if isinstance(body, ast.Call) else None
        return constructor_evidence(made) if isinstance(made, type) else {}

    def _slots(self) -> Iterator[Slot]:
        places = {id(node): index for index, node in enumerate(ast.walk(self.tree))}
        yield from self._of(self.tree.body, "", places)

    def _of(self, node: ast.AST, name: str, places: dict[int, int]) -> Iterator[Slot]:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield Slot(name, value, role_of(name) if name else None, places[id(node)], True)
            case ast.Call():
                yield from self._of_call(node, name, places)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    label = key.value if isinstance(key, ast.Constant) else name
                    yield from self._of(value, str(label), places)
            case ast.NamedExpr(value=value):
                yield from self._of(value, name, places)
            case ast.Subscript(value=value):
                yield from self._of(value, name, places)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                for item in items:
                    yield from self._of(item, name, places)
            case ast.UnaryOp(operand=operand):
                yield from self._of(operand, "", places)
            case ast.BinOp(left=left, right=right):
                yield from self._of(left, name, places)
                yield from self._of(right, "", places)
            case ast.Lambda() | ast.ListComp() | ast.GeneratorExp():
                return
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self._of(child, name, places)

    def _of_call(self, call: ast.Call, name: str, places: dict[int, int]) -> Iterator[Slot]:
        match call:
            case ast.Call(
                func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(key)), value]
            ):
                yield from self._of(value, key, places)
                return
            case ast.Call(
                func=ast.Attribute(attr="__setitem__"), args=[ast.Constant(value=str(key)), value]
            ):
                yield from self._of(value, key, places)
                return
            case _:
                pass
        made = self._called(call.func)
        parameters = list(_signature(made))
        for index, argument in enumerate(call.args):
            label = parameters[index].name if index < len(parameters) else ""
            yield from self._of(argument, label, places)
        for keyword in call.keywords:
            yield from self._of(keyword.value, keyword.arg or name, places)
        if isinstance(call.func, ast.Attribute):
            yield from self._of(call.func.value, name, places)
        if made is None or (isinstance(made, type) and made.__module__ in ("builtins", "types")):
            return
        given = {p.name for p in parameters[: len(call.args)]} | {k.arg for k in call.keywords}
        for parameter in parameters:
            role = role_of(parameter.name)
            if parameter.name not in given and type(parameter.default) is int and role in RESIZABLE:
                yield Slot(parameter.name, parameter.default, role, places[id(call)], False)
        if isinstance(made, type) and not parameters:
            for key, value in vars(made).items():
                role = role_of(key)
                if type(value) is int and role in RESIZABLE and not key.startswith("_"):
                    yield Slot(key, value, role, places[id(call)], False, attribute=True)

    def _called(self, node: ast.expr) -> Any:
        value: Any = None
        match node:
            case ast.Name(id=name):
                value = self.namespace.get(name)
            case ast.Attribute(value=owner, attr=attribute):
                value = getattr(self._called(owner), attribute, None)
        return value if callable(value) else None


def _signature(made: Any) -> list[inspect.Parameter]:
    if made is None:
        return []
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _set_attributes(node: ast.AST, values: dict[str, int]) -> None:
    """Turn the call `node` into ``[made := Call(), setattr(made, "width", 48)][0]``, in place."""
    assert isinstance(node, ast.Call)
    original = ast.Call(node.func, node.args, node.keywords)
    steps: list[ast.expr] = [ast.NamedExpr(ast.Name("made", ast.Store()), original)]
    for name, value in values.items():
        arguments = [ast.Name("made", ast.Load()), ast.Constant(name), ast.Constant(value)]
        steps.append(ast.Call(ast.Name("setattr", ast.Load()), arguments, []))
    first = ast.Subscript(ast.List(steps, ast.Load()), ast.Constant(0), ast.Load())
    # a Call cannot become a Subscript in place: the identity function carries it
    node.func = ast.Lambda(
        ast.arguments([], [ast.arg("config")], None, [], [], None, []),
        ast.Name("config", ast.Load()),
    )
    node.args, node.keywords = [first], []
