"""The state of reading one body, and how its names resolve in the built module."""

from __future__ import annotations

import ast
import inspect
from abc import abstractmethod
from typing import Any

from torch import nn

from mha_lint.targets.infer.evidence import InputEvidence, Ref

DEEPEST = 6
"""Bodies that are followed from call to call."""

Refs = dict[str, Ref]


class Reading:
    """Reads one body. ``found``: the evidence, shared by all readings; ``owner``: what ``self`` is;
    ``modules``: local names of submodules; ``returned``: the input that the body hands back.
    """

    def __init__(
        self, found: dict[str, InputEvidence], owner: Any, function: Any, depth: int
    ) -> None:
        """Prepare to read the body of `function`, which was reached over `depth` calls."""
        self.found, self.owner, self.depth = found, owner, depth
        plain = inspect.unwrap(getattr(function, "__func__", function))
        self.scope: dict[str, Any] = getattr(plain, "__globals__", {})
        self.returned: Ref | None = None
        self.modules: dict[str, Any] = {}
        self.rest = ""
        """The name of ``**kwargs``, of which items are inputs too."""

    @abstractmethod
    def value(self, node: ast.expr | None, refs: Refs) -> Ref | None:
        """Look at an expression; return the input whose axes its value still has, if any."""

    @abstractmethod
    def operation(
        self, left: ast.expr, op: ast.operator, right: ast.expr, refs: Refs
    ) -> Ref | None:
        """Look at a binary operation."""

    @abstractmethod
    def function(
        self,
        function: Any,
        owner: Any,
        arguments: list[Ref | None],
        keywords: dict[str | None, Ref | None],
    ) -> Ref | None:
        """Follow inputs into the body of `function`."""

    def module(self, node: ast.expr) -> Any:
        """Return the submodule or method that `node` names, in the built module."""
        match node:
            case ast.Name(id="self"):
                return self.owner
            case ast.Name(id=name):
                return self.modules.get(name)
            case ast.Attribute(value=owner, attr=attribute):
                held = self.module(owner)
                if held is None:
                    return None
                try:
                    return getattr(held, attribute, None)
                except Exception:  # a property of the user that needs more than we have
                    return None
            case ast.Subscript(value=owner):
                held = self.module(owner)
                if isinstance(held, nn.ModuleList | nn.Sequential) and len(held):
                    return held[0]
                if isinstance(held, nn.ModuleDict | dict) and len(held):
                    return next(iter(held.values()))
                return None
            case _:
                return None

    def shape_of(self, node: ast.expr, refs: dict[str, Ref]) -> Ref | None:
        """Return the ref whose ``.shape`` or ``.size()`` `node` is."""
        match node:
            case ast.Attribute(value=owner, attr="shape"):
                return self.value(owner, refs)
            case ast.Call(func=ast.Attribute(value=owner, attr="size"), args=[]):
                return self.value(owner, refs)
            case _:
                return None

    def hides(self, ref: Ref, hides: bool) -> None:
        """Vote that a true entry hides (or keeps) its position."""
        votes = self.found[ref.name].hides
        votes[hides] = votes.get(hides, 0.0) + 1.0
