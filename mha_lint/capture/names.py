"""One name for each operation, however it was spelled.

``x + y``, ``y.__radd__(x)``, ``x.add(y)``, ``x += y``, ``torch.add(x, y)`` and
``torch.ops.aten.add.Tensor(x, y)`` are all "add".
"""

from __future__ import annotations

from typing import Any

DUNDERS: dict[str, str] = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "div": "div", "idiv": "div",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "pow", "matmul": "matmul",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift", "invert": "bitwise_not", "neg": "neg", "pos": "positive",
    "abs": "abs", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "getitem": "index", "setitem": "setitem", "reversed": "flip",
}  # fmt: skip
"""Stems of double-underscore methods; with a leading r or i as well for the operators."""

OPERATORS = ("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "matmul", "and", "or",
             "xor", "lshift", "rshift")  # fmt: skip

SYNONYMS: dict[str, str] = {
    "absolute": "abs", "negative": "neg", "subtract": "sub", "multiply": "mul", "divide": "div",
    "true_divide": "div", "swapaxes": "transpose", "swapdims": "transpose", "t": "transpose",
    "concat": "cat", "concatenate": "cat", "moveaxis": "movedim", "_softmax": "softmax",
    "special_softmax": "softmax", "_safe_softmax": "softmax", "_log_softmax": "log_softmax",
    "special_log_softmax": "log_softmax", "special_expit": "sigmoid", "_unsafe_view": "view",
    "_reshape_alias": "reshape", "_to_copy": "to", "float": "to", "double": "to", "half": "to",
    "bfloat16": "to",  "type": "to", "cpu": "to", "cuda": "to", "mm": "matmul", "mv": "matmul",
    "dot": "matmul", "native_layer_norm": "layer_norm", "native_dropout": "dropout",
    "feature_dropout": "dropout", "alpha_dropout": "dropout", "feature_alpha_dropout": "dropout",
    "data": "detach", "alias": "detach", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne", "convolution": "convolution", "linalg_norm": "norm",
    "special_exp2": "exp2", "fix": "trunc", "clip": "clamp", "logical_invert": "logical_not",
    "long": "to", "int": "to", "bool": "to", "short": "to", "byte": "to", "char": "to",
    "fused_rms_norm": "rms_norm", "_fused_rms_norm": "rms_norm", "row_stack": "vstack",
    "arccos": "acos", "special_erf": "erf", "special_log1p": "log1p", "slice": "slice",
    "unsafe_split": "split", "unsafe_chunk": "chunk", "split_with_sizes": "split",
}  # fmt: skip

RANDOM = frozenset((
    "dropout", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like",
    "bernoulli", "multinomial", "normal", "uniform", "exponential", "geometric", "cauchy",
    "log_normal", "random", "rrelu", "poisson", "gru", "lstm", "rnn_tanh", "rnn_relu",
    "_weight_norm_random", "fractional_max_pool2d", "binomial", "_standard_gamma",
))  # fmt: skip
"""Operations that may draw random numbers."""


def raw_name(function: Any) -> str:
    """Return the bare name of `function`: "add_", "__radd__", "matmul" (of an aten overload)."""
    packet = getattr(function, "overloadpacket", function)
    name = getattr(packet, "__name__", None) or type(function).__name__
    if name == "__get__":
        return str(getattr(function.__self__, "__name__", "__get__"))
    return str(name)


def canonical_name(function: Any) -> tuple[str, bool, bool]:
    """Return ``(name, swapped, in_place)`` for `function`.

    ``swapped``: a reversed operator, whose second operand stands on the left.
    """
    name = raw_name(function)
    if name.startswith("__") and name.endswith("__"):
        stem = name.strip("_")
        if stem in DUNDERS:
            return DUNDERS[stem], False, stem == "setitem"
        if stem[1:] in OPERATORS and stem[0] in "ri":
            return DUNDERS[stem[1:]], stem[0] == "r", stem[0] == "i"
        return stem, False, False
    in_place = name.endswith("_") and not name.endswith("__")
    stem = name[:-1] if in_place else name
    return SYNONYMS.get(stem, stem), False, in_place
