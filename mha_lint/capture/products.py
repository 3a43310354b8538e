"""``einsum`` of more than two operands as a chain of products of two.

Attention written as one ``einsum("bhqk,bhkd,hdm->bqm", weights, v, w_o)`` is the value contraction
followed by the output projection; the chain shows both. Operands are joined from the left, and a
label is summed as soon as neither a later operand nor the result needs it.
"""

from __future__ import annotations

from typing import Any

import torch


def is_chain(args: tuple[Any, ...]) -> bool:
    """Return whether the arguments of ``torch.einsum`` name three operands or more in letters."""
    if not args or not isinstance(args[0], str) or "..." in args[0]:
        return False
    return args[0].partition("->")[0].count(",") >= 2


def lowered(equation: str, *operands: Any) -> torch.Tensor:
    """Compute ``torch.einsum(equation, *operands)`` two operands at a time."""
    tensors = list(operands[0]) if len(operands) == 1 else list(operands)
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = sorted(set(inputs) - {","})
        output = "".join(c for c in letters if inputs.count(c) == 1)
    term = terms[0]
    value: torch.Tensor = tensors[0]
    for index in range(1, len(terms)):
        other = terms[index]
        needed = set(output).union(*terms[index + 1 :])
        last = index == len(terms) - 1
        kept = output if last else "".join(dict.fromkeys(c for c in term + other if c in needed))
        joined: torch.Tensor = torch.einsum(f"{term},{other}->{kept}", value, tensors[index])
        value = joined
        term = kept
    return value
