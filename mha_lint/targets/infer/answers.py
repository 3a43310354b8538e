"""Objects that are asked for numbers and tables, as a data set is: what they answer.

``dataset.num("user")`` is a count of rows of a table, ``dataset.fields()`` names, ``dataset.types[f]
== Kind.TOKEN`` the kind of any field, and what has its ``.shape`` read is a tensor.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

import torch

from mha_lint.targets.infer.configs import TEXT
from mha_lint.targets.infer.input_names import LENGTHS
from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.sized import sized
from mha_lint.targets.infer.uses import Evidence
from mha_lint.targets.infer.vocabulary import Role, role_of

if TYPE_CHECKING:
    from mha_lint.targets.infer.construct import Constructor

_NAMES = re.compile(r"names?$|fields?$|columns?$|keys?$|features?$")
_OF_COLUMNS = frozenset({"tolist", "numpy", "unsqueeze", "view", "cpu", "long", "float", "shape"})
_ITEMS = ("'first'", "'second'")


def answer(constructor: Constructor, ref: str, name: str, scheme: Scheme) -> str:
    """Return an expression for what the method `name` returns; `ref`: the reference to it."""
    evidence = constructor.evidence.get(ref, Evidence())
    if evidence.length > 1:
        parts = [answer(constructor, f"{ref}[{i}]", "", scheme) for i in range(evidence.length)]
        return f"({', '.join(parts)})"
    if evidence.choices:
        return repr(evidence.choices[0])
    if evidence.array:
        return f"torch.randn({scheme.vocabulary}, {scheme.width}).numpy()"
    entries = {e for e in evidence.entries if e not in TEXT}
    if entries and all(hasattr(torch.Tensor, entry) for entry in entries):
        rows, columns = scheme.vocabulary, scheme.length
        if any(LENGTHS.search(n.rpartition(".")[2]) for n in evidence.names):
            return f"torch.randint(1, {columns}, ({rows},))"
        return f"torch.randint(0, {rows}, ({rows}, {columns}))"
    if entries:
        return constructor.stand_in(ref, evidence, None, scheme)
    if evidence.iterated and any(_NAMES.search(n) for n in (name, *evidence.names)):
        return f"[{', '.join(_ITEMS)}]"
    role = evidence.role() if evidence.roles else None
    if role is None:
        role = role_of(name) if role_of(name) in (Role.WIDTH, Role.LENGTH) else Role.VOCABULARY
    number = sized(name, role, scheme)[0]
    return f"[{number}, {number}]" if evidence.iterated else number


def is_column(entries: set[str]) -> bool:
    """Tell whether what has `entries` read is a tensor or an array, and no nested config."""
    return bool(entries & _OF_COLUMNS) and all(hasattr(torch.Tensor, e) for e in entries)


def column(scheme: Scheme, axes: int = 1) -> str:
    """Return an expression for a column of ids, each of which occurs in it, or for a table of rows.

    `axes`: of how many axes the lengths are read.
    """
    if axes > 1:
        return f"torch.randn({scheme.vocabulary}, {scheme.width})"
    return f"torch.arange({scheme.vocabulary})"


def table(constructor: Constructor, ref: str, scheme: Scheme) -> str:
    """Return an expression for a table that has the same under any key."""
    evidence = constructor.evidence.get(f"{ref}[]", Evidence())
    if evidence.members:
        return f"AnyKey({member_expression(evidence.members[0], constructor.scope)})"
    if evidence.choices:
        return f"AnyKey({evidence.choices[0]!r})"
    return f"AnyKey({sized('', evidence.role() or Role.VOCABULARY, scheme)[0]})"


def member_expression(member: enum.Enum, scope: dict[str, object]) -> str:
    """Return an expression for an enum member, by a name in `scope` where there is one."""
    kind = type(member)
    name = next((n for n, v in scope.items() if v is kind), None)
    if name is None:
        name = f"__import__({kind.__module__!r}, fromlist=['']).{kind.__qualname__}"
    return f"{name}.{member.name}"
