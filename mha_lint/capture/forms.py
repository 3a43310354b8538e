"""The one form in which each common operation is recorded: its target and its arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mha_lint.capture.stand_ins import dropout, index, view


@dataclass(frozen=True, slots=True)
class Form:
    """The wanted form: positional names first, then names passed as keywords, in call order.

    ``order`` is the order of positional arguments as called; ``positional`` of them stay so.
    """

    target: Callable[..., Any]
    order: tuple[str, ...]
    positional: int
    spread: bool = False
    """The last positional argument may come spread out: ``view(2, 3)`` for ``view((2, 3))``."""


_SUB = getattr(torch, "sub")  # noqa: B009 - torch's stubs overload these beyond one type
FORMS: dict[str, Form] = {
    "matmul": Form(torch.matmul, ("input", "other"), 2),
    "bmm": Form(torch.bmm, ("input", "mat2"), 2),
    "baddbmm": Form(torch.baddbmm, ("input", "batch1", "batch2", "beta", "alpha"), 3),
    "addmm": Form(torch.addmm, ("input", "mat1", "mat2", "beta", "alpha"), 3),
    "inner": Form(torch.inner, ("input", "other"), 2),
    "tensordot": Form(torch.tensordot, ("a", "b", "dims", "out"), 2),
    "softmax": Form(torch.softmax, ("input", "dim", "dtype"), 1),
    "log_softmax": Form(torch.log_softmax, ("input", "dim", "dtype"), 1),
    "add": Form(torch.add, ("input", "other", "alpha"), 2),
    "sub": Form(_SUB, ("input", "other", "alpha"), 2),
    "mul": Form(torch.mul, ("input", "other"), 2),
    "div": Form(torch.div, ("input", "other", "rounding_mode"), 2),
    "pow": Form(torch.pow, ("input", "exponent"), 2),
    "masked_fill": Form(torch.masked_fill, ("input", "mask", "value"), 3),
    "where": Form(torch.where, ("condition", "input", "other"), 3),
    "transpose": Form(torch.transpose, ("input", "dim0", "dim1"), 3),
    "permute": Form(torch.permute, ("input", "dims"), 2, spread=True),
    "reshape": Form(torch.reshape, ("input", "shape"), 2, spread=True),
    "view": Form(view, ("input", "size"), 2, spread=True),
    "expand": Form(torch.Tensor.expand, ("input", "size"), 2, spread=True),
    "repeat": Form(torch.Tensor.repeat, ("input", "repeats"), 2, spread=True),
    "flatten": Form(torch.flatten, ("input", "start_dim", "end_dim"), 1),
    "unflatten": Form(torch.unflatten, ("input", "dim", "sizes"), 3),
    "squeeze": Form(torch.squeeze, ("input", "dim"), 2),
    "unsqueeze": Form(torch.unsqueeze, ("input", "dim"), 2),
    "split": Form(torch.split, ("input", "split_size_or_sections", "dim"), 2),
    "chunk": Form(torch.chunk, ("input", "chunks", "dim"), 2),
    "unbind": Form(torch.unbind, ("input", "dim"), 1),
    "cat": Form(torch.cat, ("tensors", "dim"), 1),
    "stack": Form(torch.stack, ("tensors", "dim"), 1),
    "sum": Form(torch.sum, ("input", "dim", "keepdim", "dtype"), 1),
    "mean": Form(torch.mean, ("input", "dim", "keepdim", "dtype"), 1),
    "amax": Form(torch.amax, ("input", "dim", "keepdim"), 1),
    "index": Form(index, ("input", "item"), 2),
    "linear": Form(torch.nn.functional.linear, ("input", "weight", "bias"), 3),
    "dropout": Form(dropout, ("input", "p", "training"), 1),
    "tril": Form(torch.tril, ("input", "diagonal"), 1),
    "triu": Form(torch.triu, ("input", "diagonal"), 1),
    "exp": Form(torch.exp, ("input",), 1),
    "neg": Form(torch.neg, ("input",), 1),
    "sigmoid": Form(torch.sigmoid, ("input",), 1),
    "relu": Form(torch.relu, ("input",), 1),
    "tanh": Form(torch.tanh, ("input",), 1),
    "narrow": Form(torch.narrow, ("input", "dim", "start", "length"), 4),
    "select": Form(torch.select, ("input", "dim", "index"), 3),
    "index_select": Form(torch.index_select, ("input", "dim", "index"), 3),
    "gather": Form(torch.gather, ("input", "dim", "index"), 3),
    "repeat_interleave": Form(torch.repeat_interleave, ("input", "repeats", "dim"), 2),
    "layer_norm": Form(
        torch.layer_norm, ("input", "normalized_shape", "weight", "bias", "eps", "cudnn_enable"), 4
    ),
}  # fmt: skip
RENAMED = {
    "self": "input", "axis": "dim", "keepdims": "keepdim", "axis0": "dim0", "axis1": "dim1",
    "train": "training", "mat2": "other", "vec": "other", "tensor": "other", "shape": "size",
    "split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections",
    "indices_or_sections": "split_size_or_sections", "size": "shape",
}  # fmt: skip
REVERSED: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "pow": operator.pow, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "matmul": operator.matmul, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
}  # fmt: skip
