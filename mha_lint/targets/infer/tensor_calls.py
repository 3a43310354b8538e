"""Calls of tensor methods and functions, einsum and einops patterns, on the way of an input."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch
from torch import nn

from mha_lint.targets.infer.evidence import Ref
from mha_lint.targets.infer.input_names import QKV
from mha_lint.targets.infer.reading import Reading, Refs


class TensorCalls(Reading):
    """What calls on tensors tell about the inputs in them."""

    def method(
        self,
        call: ast.Call,
        name: str,
        owner: Ref | None,
        arguments: list[Ref | None],
        keywords: dict[str | None, Ref | None],
        refs: Refs,
    ) -> Ref | None:
        """Look at a method or function call; `owner`: the input that it is a method of."""
        if name == "einsum":
            return self.einsum(call, arguments)
        if name in ("rearrange", "repeat", "reduce") and arguments and arguments[0] is not None:
            return self.pattern(call, arguments)
        first = arguments[0] if arguments else None
        if name in ("masked_fill", "masked_fill_", "where", "masked_scatter"):
            mask = first
            if mask is not None and owner is not None and mask.name == owner.name:
                self.found[mask.name].numeric_mask = True  # mask.masked_fill(mask == 0, -inf)
            elif mask is not None:
                self.found[mask.name].as_mask = True
                self.found[mask.name].boolean = True
                hides = name != "where"
                self.hides(mask, hides != self._inverted(call.args[0], refs))
            return owner if name != "where" else None
        if name == "embedding" and first is not None:
            table = self.module(call.args[1]) if len(call.args) > 1 else None
            self.index(first, table)
            return None
        if name == "linear" and first is not None:
            weight = self.module(call.args[1]) if len(call.args) > 1 else None
            if isinstance(weight, torch.Tensor):
                self.found[first.name].vote_last(weight.shape[-1], 2 if first.whole else 0)
            return Ref(first.name, whole=False)
        if name in ("bmm", "baddbmm"):
            for node, operand in zip(call.args, arguments, strict=True):
                if operand is not None and operand.whole and ast.unparse(node) == operand.name:
                    self.found[operand.name].vote_rank(3, 0.5)
        if name == "matmul" and len(call.args) == 2:
            return self.operation(call.args[0], ast.MatMult(), call.args[1], refs)
        if name == "scaled_dot_product_attention":
            mask = keywords.get("attn_mask") or (arguments[3] if len(arguments) > 3 else None)
            if mask is not None:
                self.found[mask.name].as_mask = True
                self.hides(mask, False)
            for operand in arguments[:3]:
                if operand is not None and operand.whole:
                    self.found[operand.name].vote_rank(4, 0.5)
            return None
        if owner is None:
            return first if name in ("dropout", "relu", "gelu", "softmax", "normalize") else None
        evidence = self.found[owner.name]
        numbers = [
            a.value for a in call.args if isinstance(a, ast.Constant) and type(a.value) is int
        ]
        if name == "permute" and len(call.args) > 1:
            evidence.vote_rank(len(call.args), 3)
            split = sorted(numbers[:3]) == [0, 1, 2] and numbers[3:] == [3]
            if split and owner.whole and QKV.match(owner.name.lower()):
                turned = sorted(zip(numbers, "bhtd", strict=True))  # to (B, h, T, d)
                evidence.letters.append(tuple(letter for _, letter in turned))
            return None
        if name in ("size", "transpose", "unbind", "swapaxes") and numbers:
            evidence.at_least(max(numbers) + 1)
            return None
        if name == "repeat" and len(call.args) > 1:
            source = call.func.value if isinstance(call.func, ast.Attribute) else None
            new = isinstance(source, ast.Call) and getattr(source.func, "attr", "") == "unsqueeze"
            evidence.vote_rank(len(call.args) - int(new), 1)
            return None
        if name in ("chunk", "split"):
            axis = next((k.value for k in call.keywords if k.arg == "dim"), None)
            if isinstance(axis, ast.Constant) and type(axis.value) is int and axis.value > 0:
                evidence.vote_rank(axis.value + 1, 0.5)
            return Ref(owner.name, whole=False)
        if name == "unsqueeze" and numbers:
            evidence.vote_rank(max(numbers[0], 1), 0.2)
            return owner
        if name in ("bool", "logical_not"):
            evidence.boolean = True
            return owner
        if name in ("eq", "ne"):
            evidence.as_mask = True
            return owner
        if name in ("get", "keys", "items") and call.args:
            key = call.args[0]
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                evidence.items.add(key.value)
            return None
        if name in ("float", "half", "double", "to", "type", "type_as", "contiguous", "clone",
                    "detach", "expand", "cpu", "long", "masked_fill"):  # fmt: skip
            return owner
        return None

    def _inverted(self, node: ast.expr, refs: dict[str, Ref]) -> bool:
        """Tell whether a mask argument is ``~mask``, ``mask == 0``, ``mask.logical_not()``."""
        inverted = False
        for part in ast.walk(node):
            match part:
                case ast.UnaryOp(op=ast.Invert() | ast.Not()):
                    inverted = not inverted
                case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
                    inverted = not inverted
                case ast.Compare(ops=[ast.NotEq()], comparators=[ast.Constant(value=1)]):
                    inverted = not inverted
                case ast.Call(func=ast.Attribute(attr="logical_not")):
                    inverted = not inverted
                case ast.Call(func=ast.Attribute(attr="eq"), args=[ast.Constant(value=0)]):
                    inverted = not inverted
                case _:
                    pass
        return inverted

    def index(self, ref: Ref, table: Any) -> None:
        """Note that an input indexes the rows of `table`."""
        evidence = self.found[ref.name]
        evidence.integer = True
        evidence.vote_rank(2, 2)
        if isinstance(table, nn.Embedding):
            evidence.indices = table.num_embeddings
        elif isinstance(table, torch.Tensor):
            evidence.indices = table.shape[0]

    def pattern(self, call: ast.Call, arguments: list[Ref | None]) -> Ref | None:
        """Read an einops pattern: ``rearrange(x, "b n (h d) -> b h n d")``."""
        pattern = call.args[1] if len(call.args) > 1 else None
        ref = arguments[0] if arguments else None
        text = _text(pattern)
        if ref is None or "->" not in text:
            return None
        left = text.partition("->")[0]
        axes = re.findall(r"\([^)]*\)|\S+", left)
        if "..." not in axes:
            self.found[ref.name].vote_rank(len(axes), 3)
            self.found[ref.name].letters.append(tuple(a.strip("()").lower() for a in axes))
        return None

    def einsum(self, call: ast.Call, arguments: list[Ref | None]) -> Ref | None:
        """Read an einsum: ``einsum("btc,cd->btd", x, self.weight)``."""
        texts = [text for a in call.args if (text := _text(a))]
        if not texts:
            return None
        terms = texts[0].partition("->")[0].split(",")
        operands = [
            (node, ref)
            for node, ref in zip(call.args, arguments, strict=True)
            if not isinstance(node, ast.Constant | ast.JoinedStr)
        ]
        sizes: dict[str, int] = {}
        split = [t.split() if " " in t.strip() else list(t.strip()) for t in terms]
        for axes, (node, _) in zip(split, operands, strict=False):
            held = self.module(node)
            if isinstance(held, torch.Tensor) and held.dim() == len(axes):
                sizes |= dict(zip(axes, held.shape, strict=True))
        made: Ref | None = None
        for axes, (_, ref) in zip(split, operands, strict=False):
            if ref is None or "..." in "".join(axes):
                continue
            evidence = self.found[ref.name]
            evidence.vote_rank(len(axes), 2)
            if ref.whole and axes and axes[-1] in sizes:
                evidence.vote_last(sizes[axes[-1]], 2)
            made = made or (Ref(ref.name, whole=False) if len(operands) == 2 and sizes else None)
        return made


def _text(node: ast.expr | None) -> str:
    """Return the string that `node` is, also one written as ``f"..."``; "" for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts) if all(isinstance(p, ast.Constant) for p in parts):
            return "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))
        case _:
            return ""
