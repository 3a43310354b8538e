"""What ``forward`` does with its inputs: read its body in order, and follow the inputs into the
built module's own parts, whose sizes are known.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from mha_lint.targets.infer.bodies import function_tree
from mha_lint.targets.infer.evidence import (
    InputEvidence,
    Ref,
    parameter_names,
    take_words,
    take_written_shapes,
)
from mha_lint.targets.infer.input_names import MASK
from mha_lint.targets.infer.module_calls import ModuleCalls
from mha_lint.targets.infer.reading import DEEPEST, Refs


def forward_evidence(made: Any) -> dict[str, InputEvidence]:
    """Return what is known of each input of the module or function `made`."""
    found: dict[str, InputEvidence] = {}
    function = made.forward if isinstance(made, nn.Module) else made
    tree = function_tree(function)
    if tree is None:
        return found
    names = parameter_names(tree, bound=isinstance(made, nn.Module))
    for name in names:
        found[name] = InputEvidence()
    take_written_shapes(tree, found)
    take_words(tree, found)
    reader = Reader(found, made, function, 0)
    reader.rest = tree.args.kwarg.arg if tree.args.kwarg is not None else ""
    reader.body(tree, {name: Ref(name) for name in names})
    return found


class Reader(ModuleCalls):
    """Reads statements and expressions."""

    def body(self, tree: ast.FunctionDef | ast.AsyncFunctionDef, refs: Refs) -> None:
        """Read a whole function; `refs`: what its parameters are."""
        self._statements(tree.body, refs)

    def _statements(self, statements: Sequence[ast.stmt], refs: Refs) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    made = self.value(value, refs)
                    for target in targets:
                        self._assign(target, value, made, refs)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign(target, value, self.value(value, refs), refs)
                case ast.AugAssign(target=target, value=value):
                    self.value(value, refs)
                    self._operand(target, value, statement.op, refs)
                case ast.For(target=target, iter=values, body=body, orelse=orelse):
                    self.loop(target, values, refs)
                    self._statements([*body, *orelse], refs)
                case ast.While(test=test, body=body, orelse=orelse):
                    self.value(test, refs)
                    self._statements([*body, *orelse], refs)
                case ast.If(test=test, body=body, orelse=orelse):
                    self.value(test, refs)
                    outer = dict(refs)
                    self._statements(body, refs)
                    self._statements(orelse, outer)
                    for name, ref in outer.items():
                        refs.setdefault(name, ref)
                case ast.With(body=body) | ast.Try(body=body):
                    self._statements(body, refs)
                case ast.Return(value=ast.expr() as value):
                    self.returned = self.value(value, refs)
                case ast.Expr(value=value):
                    self.value(value, refs)
                case ast.Assert(test=test):
                    self.value(test, refs)
                case _:
                    pass

    def loop(self, target: ast.expr, values: ast.expr, refs: Refs) -> None:
        """Bind the target of a loop to what it goes over."""
        held = self.module(values)
        if isinstance(values, ast.Call) and getattr(values.func, "id", "") in ("enumerate", "zip"):
            inner = values.args[-1] if getattr(values.func, "id", "") == "enumerate" else None
            pairs = values.args if inner is None else [None, inner]
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            for one, source in zip(targets, pairs, strict=False):
                if source is not None:
                    self.loop(one, source, refs)
            return
        if isinstance(held, nn.ModuleList | nn.Sequential) and len(held):
            if isinstance(target, ast.Name):
                self.modules[target.id] = held[0]
            elif isinstance(target, ast.Tuple) and isinstance(held[0], nn.ModuleList):
                for one, part in zip(target.elts, held[0], strict=False):
                    self.modules[ast.unparse(one)] = part
            return
        if isinstance(held, list | tuple) and isinstance(target, ast.Name) and held:
            self.modules[target.id] = held
            return
        ref = self.value(values, refs)
        if ref is not None:
            self.found[ref.name].iterated = True

    def _assign(self, target: ast.expr, value: ast.expr, made: Ref | None, refs: Refs) -> None:
        match target:
            case ast.Name(id=name):
                self._axis_name(name, value, refs)
                if made is not None:
                    refs[name] = made
                else:
                    refs.pop(name, None)
                    if (held := self.module(value)) is not None:
                        self.modules[name] = held
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if (ref := self.shape_of(value, refs)) is not None:
                    if any(isinstance(t, ast.Starred) for t in targets):
                        self.found[ref.name].at_least(len(targets))
                    else:
                        self.found[ref.name].vote_rank(len(targets), 3)
                        self.found[ref.name].letters.append(
                            tuple(ast.unparse(t).lower() for t in targets)
                        )
                elif made is not None and made.whole and isinstance(value, ast.Name):
                    self._parts(made.name, targets, refs)
                    return
                elif isinstance(value, ast.Tuple) and len(value.elts) == len(targets):
                    for one, item in zip(targets, value.elts, strict=True):
                        self._assign(one, item, self.value(item, refs), refs)
                    return
                for one in targets:
                    if isinstance(one, ast.Name):
                        if isinstance(value, ast.Call) and made is not None and not made.whole:
                            refs[one.id] = made  # q, k, v = self.qkv(x).chunk(3)
                        else:
                            refs.pop(one.id, None)
            case _:
                pass

    def _parts(self, name: str, targets: list[ast.expr], refs: Refs) -> None:
        """Bind what an input is unpacked into: each part gets evidence of its own."""
        self.found[name].parts = max(self.found[name].parts, len(targets))
        for index, one in enumerate(targets):
            if isinstance(one, ast.Name):
                part = f"{name}[{index}]"
                self.found.setdefault(part, InputEvidence())
                refs[one.id] = Ref(part)

    def _axis_name(self, name: str, value: ast.expr, refs: Refs) -> None:
        """Note ``src_len = encoder_outputs.shape[0]``, ``n = x.size(1)``."""
        match value:
            case ast.Subscript(value=owner, slice=ast.Constant(value=int(axis))):
                ref = self.shape_of(owner, refs)
            case ast.Call(
                func=ast.Attribute(value=inner, attr="size"), args=[ast.Constant(value=int(axis))]
            ):
                ref = self.value(inner, refs)
            case _:
                return
        if ref is not None and ref.whole and axis >= 0:
            self.found[ref.name].axis_names[axis] = name.lower()

    def value(self, node: ast.expr | None, refs: Refs) -> Ref | None:
        """Look at an expression; return the input whose axes its value still has, if any."""
        match node:
            case None:
                return None
            case ast.Name(id=name):
                return refs.get(name)
            case ast.Call():
                return self._call(node, refs)
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(left, op, right, refs)
            case ast.UnaryOp(op=op, operand=operand):
                ref = self.value(operand, refs)
                if ref is not None and isinstance(op, ast.Invert):
                    self.found[ref.name].boolean = True
                return ref
            case ast.Subscript(value=owner, slice=index):
                return self._subscript(owner, index, refs)
            case ast.Attribute(value=owner, attr=attribute):
                ref = self.value(owner, refs)
                if ref is not None:
                    known = hasattr(torch.Tensor, attribute)
                    if not known and ref.whole:
                        self.found[ref.name].attributes.add(attribute)
                return ref if attribute in ("data", "real") else None
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.value(test, refs)
                other = self.value(orelse, refs)
                return self.value(body, refs) or other
            case ast.Compare(left=left, ops=[op, *_], comparators=[right, *_]):
                return self._comparison(left, op, right, refs)
            case (
                ast.ListComp(elt=elt, generators=generators)
                | ast.GeneratorExp(elt=elt, generators=generators)
            ):
                inner = dict(refs)
                for generator in generators:
                    source = generator.iter
                    if isinstance(source, ast.Tuple | ast.List) and isinstance(
                        generator.target, ast.Name
                    ):
                        for item in source.elts:  # (split(t) for t in (q, k, v))
                            if (held := self.module(item)) is not None:
                                self.modules[generator.target.id] = held
                            elif (ref := self.value(item, refs)) is not None:
                                inner[generator.target.id] = ref
                            self.value(elt, inner)
                    else:
                        self.loop(generator.target, source, inner)
                self.value(elt, inner)
                return None
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child, refs)
                return None

    def operation(
        self, left: ast.expr, op: ast.operator, right: ast.expr, refs: Refs
    ) -> Ref | None:
        """Look at a binary operation; products with weights tell widths."""
        a, b = self.value(left, refs), self.value(right, refs)
        if isinstance(op, ast.MatMult):
            weight = self.module(right)
            if a is not None and isinstance(weight, torch.Tensor) and weight.dim() == 2:
                self.found[a.name].vote_last(weight.shape[0], 2 if a.whole else 0)
                return Ref(a.name, whole=False)
            return None
        if isinstance(op, ast.Sub) and isinstance(left, ast.Constant) and b is not None:
            self.found[b.name].numeric_mask = True  # (1 - mask)
            self.hides(b, False)
            return b
        if isinstance(op, ast.Mult):
            for ref in (a, b):
                if ref is not None:
                    self.found[ref.name].factor = True
        if isinstance(op, ast.Add):
            if a is not None and b is not None and a.whole and b.whole:
                self.found[b.name].added_to.add(a.name)
                self.found[a.name].added_to.add(b.name)
            for ref, other in ((a, b), (b, a)):
                if ref is not None and other is None:
                    self.found[ref.name].additive_mask = True
        for ref, side in ((a, right), (b, left)):
            held = self.module(side)
            if ref is not None and isinstance(held, torch.Tensor) and held.dim() > 1:
                evidence = self.found[ref.name]
                evidence.vote_rank(held.dim(), 1)
                if ref.whole and held.shape[-1] > 1:
                    evidence.vote_last(held.shape[-1], 1)
                for axis in range(1, held.dim() - 1):
                    if held.shape[axis] > 1:
                        evidence.fixed[axis] = held.shape[axis]
        return a or b

    def _operand(self, target: ast.expr, value: ast.expr, op: ast.operator, refs: Refs) -> None:
        self.operation(target, op, value, refs)

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr, refs: Refs) -> Ref | None:
        if isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn):
            if isinstance(left, ast.Name) and left.id in refs and not isinstance(op, ast.In):
                self.found[refs[left.id].name].or_none |= ast.unparse(right) == "None"
            return None
        ref, other = self.value(left, refs), self.value(right, refs)
        if not isinstance(op, ast.Eq | ast.NotEq):
            for one, opposite in ((ref, right), (other, left)):
                if one is not None and not isinstance(opposite, ast.Constant):
                    self.found[one.name].compared = True
        if ref is not None and isinstance(right, ast.Constant) and right.value in (0, 1):
            wanted = right.value == (0 if isinstance(op, ast.Eq) else 1)
            self.found[ref.name].as_mask = True
            return Ref(ref.name, whole=ref.whole) if wanted else ref
        return None

    def _subscript(self, owner: ast.expr, index: ast.expr, refs: Refs) -> Ref | None:
        if (shaped := self.shape_of(owner, refs)) is not None:
            if (
                isinstance(index, ast.Constant)
                and isinstance(index.value, int)
                and index.value >= 0
            ):
                self.found[shaped.name].at_least(index.value + 1)
            return None
        self.value(index, refs)
        if isinstance(owner, ast.Name) and owner.id == self.rest and (keys := self._keys(index)):
            self.found.setdefault(keys[0], InputEvidence())
            return Ref(keys[0])
        ref = self.value(owner, refs)
        if ref is None:
            table = self.module(owner)
            inner = self.value(index, refs)
            if isinstance(table, torch.Tensor) and inner is not None:
                self.found[inner.name].indices = table.shape[0]
                self.found[inner.name].integer |= not MASK.search(inner.name.lower())
            return None
        evidence = self.found[ref.name]
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if keys := self._keys(index):
            evidence.items.update(keys)
            return None
        if any(isinstance(p, ast.Constant) and p.value is Ellipsis for p in parts):
            return None
        new = sum(isinstance(p, ast.Constant) and p.value is None for p in parts)
        old = len(parts) - new
        if new:
            full = old == len(parts) - new and all(
                isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value is None)
                for p in parts
            )
            evidence.vote_rank(max(old, 1), 3 if old > 1 else 1)
            return ref if full else None
        if old > 1:
            evidence.at_least(old)
            if not evidence.ranks:
                evidence.vote_rank(old if old > 2 else 3, 0.5)
        elif isinstance(index, ast.Constant) and isinstance(index.value, int) and ref.whole:
            evidence.parts = max(evidence.parts, index.value + 1)
        return None

    def _keys(self, index: ast.expr) -> list[str]:
        """Return the strings that `index` stands for: written, kept by the module, or looped over."""
        if isinstance(index, ast.Constant):
            return [index.value] if isinstance(index.value, str) else []
        held = self.module(index) if isinstance(index, ast.Name | ast.Attribute) else None
        held = [held] if isinstance(held, str) else held
        is_names = isinstance(held, list | tuple) and all(isinstance(k, str) for k in held)
        return list(held) if is_names and held is not None else []

    def _call(self, call: ast.Call, refs: Refs) -> Ref | None:
        held = self.module(call.func)
        arguments = [
            self.value(a.value if isinstance(a, ast.Starred) else a, refs) for a in call.args
        ]
        keywords = {k.arg: self.value(k.value, refs) for k in call.keywords}
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if (isinstance(held, nn.Module) and name != "forward") or isinstance(held, nn.Module):
            return self.submodule(held, arguments, keywords)
        if held is not None and inspect.ismethod(held):
            if isinstance(held.__self__, nn.Module) and held.__name__ == "forward":
                return self.submodule(held.__self__, arguments, keywords)
            return self.function(held, held.__self__, arguments, keywords)
        if held is not None and inspect.isfunction(held):
            return self.function(held, self.owner, arguments, keywords)
        if isinstance(call.func, ast.Name):
            made = self.scope.get(name)
            if name in ("rearrange", "repeat", "reduce"):
                return self.pattern(call, arguments)
            if inspect.isfunction(made) and not made.__module__.startswith("torch"):
                return self.function(made, None, arguments, keywords)
            if name == "einsum":
                return self.einsum(call, arguments)
            return None
        assert isinstance(call.func, ast.Attribute | ast.expr)
        owner = self.value(call.func.value, refs) if isinstance(call.func, ast.Attribute) else None
        return self.method(call, name, owner, arguments, keywords, refs)

    def function(
        self,
        function: Any,
        owner: Any,
        arguments: list[Ref | None],
        keywords: dict[str | None, Ref | None],
    ) -> Ref | None:
        """Follow refs into a method, a local function or the forward of a user's part."""
        tree = function_tree(function)
        if tree is None or self.depth >= DEEPEST:
            return None
        names = parameter_names(tree, bound=inspect.ismethod(function))
        given = {n: r for n, r in zip(names, arguments, strict=False) if r is not None}
        given |= {k: r for k, r in keywords.items() if r is not None and k in names}
        if not given:
            return None
        whole = {n: self.found[r.name] for n, r in given.items() if r.whole}
        take_written_shapes(tree, {n: e for n, e in whole.items() if not e.letters})
        take_words(tree, whole)
        inner = Reader(
            self.found, owner if owner is not None else self.owner, function, self.depth + 1
        )
        inner.body(tree, dict(given))
        return inner.returned
