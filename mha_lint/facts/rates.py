"""The dropout rates of a construction: their names, and the same construction with other rates."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from typing import Any

from mha_lint.facts.classes import class_sources
from mha_lint.model.source import Span
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.sizes import bound_arguments
from mha_lint.targets.subject import Subject

TRIED = (0.11, 0.17, 0.23, 0.29, 0.31, 0.37, 0.41, 0.43)
"""Rates that differ from each other, from what keeps as much, and from what people write."""
_ATTENTION = re.compile(r"att")
_ELSEWHERE = re.compile(r"out|proj|res|post|layer|path|ff|mlp|emb|hidden|act|stoch")
_DEPTH = re.compile(
    r"path|layer_?drop|drop_?layer|stoch|depth|emb|token|word|feature|branch|block_?drop|drop_?block|skip"
)
"""Words of what drops a part of the network or of the input as a whole."""
_KEEP = re.compile(r"keep")
_DROPOUT = re.compile(r"drop|keep|^p$|^rate$|^dp$|^do$|att(entio)?n?_p$|proj_p$")


def rates_of(subject: Subject, read: frozenset[str] = frozenset()) -> dict[str, float]:
    """Return the dropout rates above 0 that are meant for what `subject` computes, by name.

    Those among the arguments of the construction. Of the entries of a configuration object, which
    serves other modules too, only those that are called after attention; and where that is several,
    those that the code around the attention reads (the names of `read`).
    """
    rates = {
        name: float(value)
        for name, value in subject.stated.items()
        if role_of(name) is Role.RATE
        and _DROPOUT.search(name.lower())
        and not _DEPTH.search(name.lower())
        and not isinstance(value, bool)
    }
    own = _arguments(subject) & set(rates)
    entries = {name for name in rates.keys() - own if is_for_attention(name)}
    if len(entries) > 1 or _is_made_of_parts(subject):
        entries &= read
    return {name: rate for name, rate in rates.items() if 0 < rate < 1 and name in own | entries}


def unnamed_rates(subject: Subject) -> dict[str, float]:
    """Return arguments of the construction that may be rates by their values, not by their names."""
    known, own = rates_of(subject), _arguments(subject)
    return {
        name: value
        for name, value in subject.stated.items()
        if name in own and name not in known and isinstance(value, float) and 0 < value < 0.5
    }


def _arguments(subject: Subject) -> frozenset[str]:
    """Return the parameters of the class that the construction gave a number of their own.

    An entry of a configuration may be called as a parameter is, and be meant for another thing. A
    module that was taken from a program keeps no numbers but those of its configuration.
    """
    try:
        own = frozenset(inspect.signature(type(subject.module)).parameters) & set(subject.stated)
    except (TypeError, ValueError):
        return frozenset()
    if not own or subject.how == "live":
        return frozenset()
    bound = bound_arguments(subject.recipe, subject.namespace)
    return own & {name for name, value in bound.items() if isinstance(value, int | float)}


def _is_made_of_parts(subject: Subject) -> bool:
    """Return whether one configuration makes the subject and what lies around it, or all its parts."""
    return subject.how == "live" or (subject.how == "stated" and "(" not in subject.build)


def is_for_attention(name: str) -> bool:
    """Return whether `name` says that the rate is that of the attention weights."""
    plain = _plain(name)
    return bool(_ATTENTION.search(plain)) and not _ELSEWHERE.search(plain)


def is_for_others(name: str) -> bool:
    """Return whether `name` says that the rate is not that of the attention weights."""
    return bool(_ELSEWHERE.search(_plain(name)))


def _plain(name: str) -> str:
    return name.lower().replace("dropout", "drop").replace("drop_out", "drop")


def is_drawn_against(subject: Subject, name: str) -> bool:
    """Return whether code compares `name` with a random number: a part is left out by chance."""
    return any(
        {_called(n) for n in ast.walk(compared)} & {name}
        and any("rand" in _called(n) for n in ast.walk(compared))
        for source in class_sources(type(subject.module))
        for compared in ast.walk(source.node)
        if isinstance(compared, ast.Compare)
    )


def _called(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keeps(name: str) -> bool:
    """Return whether `name` says that it is the probability to keep an element."""
    return bool(_KEEP.search(name.lower()))


def off_by_default(subject: Subject, name: str) -> bool:
    """Return whether `name` is 0 unless it is passed, and nobody but us passed it."""
    if subject.how != "inferred" or subject.spec.build is not None:
        return False
    try:
        found = inspect.signature(type(subject.module)).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return found is not None and found.default == 0


def with_rates(subject: Subject, rates: Mapping[str, float]) -> tuple[str, dict[str, float]]:
    """Return the build expression with other rates, and those of them that it could take."""
    tree = ast.parse(subject.build, mode="eval")
    taken: dict[str, float] = {}
    for call in [n for n in ast.walk(tree) if isinstance(n, ast.Call)]:
        parameters = _parameters(call, subject.namespace)
        for name, rate in rates.items():
            value = ast.Constant(rate)
            given = next((k for k in call.keywords if k.arg == name), None)
            if given is not None:
                given.value = value
            elif name in parameters[: len(call.args)]:
                call.args[parameters.index(name)] = value
            elif name in parameters:
                call.keywords.append(ast.keyword(name, value))
            else:
                continue
            taken[name] = rate
    return ast.unparse(ast.fix_missing_locations(tree)), taken


def _parameters(call: ast.Call, namespace: dict[str, Any]) -> list[str]:
    """Return the names of the parameters of what `call` calls, none where that cannot be told."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return []
    try:
        made = eval(compile(ast.Expression(call.func), "<mha-lint>", "eval"), namespace)
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found = inspect.signature(made).parameters.values()
    except Exception:  # whatever user code raises: the call then keeps its arguments
        return []
    return [p.name for p in found if p.kind not in kinds]


def stored_at(subject: Subject, argument: str) -> Span | None:
    """Return the statement of the constructor that takes `argument` up, if its class is at hand."""
    for source in class_sources(type(subject.module)):
        for function in ast.walk(source.node):
            if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
                continue
            for statement in ast.walk(function):
                if isinstance(statement, ast.Assign | ast.AnnAssign) and _reads(
                    statement, argument
                ):
                    end = statement.end_lineno or statement.lineno
                    column = (statement.end_col_offset or 0) + 1
                    at = statement.lineno, statement.col_offset + 1
                    return Span(source.path, *at, end, column)
    return None


def _reads(statement: ast.Assign | ast.AnnAssign, argument: str) -> bool:
    if statement.value is None:
        return False
    return any(
        (isinstance(n, ast.Name) and n.id == argument)
        or (isinstance(n, ast.Attribute) and n.attr == argument)
        for n in ast.walk(statement.value)
    )
