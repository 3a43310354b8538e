"""Every known deviation, alone: its key, name, stage and sentence, and no two the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from torch import Tensor

from mha_lint.oracle import compare, confirm
from tests.oracle.conftest import (
    CROSS_FIRST,
    CROSS_SECOND,
    FIRST,
    SECOND,
    Make,
    Size,
    make_site,
    merge_right,
    softmax_over,
    split_channels_first,
    split_heads_as_rows,
    split_samples_as_rows,
    split_view,
)

SPLITS = {
    "a view without transpose": (split_view, merge_right),
    "a view of channels before positions": (split_channels_first, merge_right),
    "heads taken as rows": (split_heads_as_rows, lambda y: y),
    "samples taken as rows": (split_samples_as_rows, lambda y: y.permute(2, 0, 1, 3)),
}


@dataclass(frozen=True)
class Fault:
    """One deviation, and what must be said of it."""

    make: Make
    stage: str
    keys: tuple[str, ...]
    name: str
    phrase: str
    crosses: bool = True


def scaled(scale: Callable[[Size], float], name: str, phrase: str) -> Fault:
    return Fault(Make(scale=scale), "scores", ("scale",), name, phrase)


def weighed(weigh: Callable[[Tensor], Tensor], key: str, name: str, phrase: str) -> Fault:
    return Fault(Make(weigh=weigh), "weights", (key,), name, phrase)


def axis(axes: tuple[int, ...], name: str, phrase: str) -> Fault:
    return weighed(softmax_over(*axes), "softmax-axis", name, f"softmax over {phrase}")


def merged(merge: Callable[[Tensor], Tensor], name: str, phrase: str) -> Fault:
    return Fault(Make(merge=merge), "output", ("merge",), name, phrase)


FAULTS = [
    *(
        Fault(
            Make(split_q=split, split_k=split, split_v=split, merge=merge),
            "operands",
            ("split:q", "split:k", "split:v"),
            name,
            f"queries, keys and values split by {name}",
            crosses=False,
        )
        for name, (split, merge) in SPLITS.items()
    ),
    Fault(
        Make(split_q=split_view),
        "operands",
        ("split:q",),
        "a view without transpose",
        "queries split by a view without transpose",
    ),
    Fault(
        Make(split_k=split_view),
        "operands",
        ("split:k",),
        "a view without transpose",
        "keys split by a view without transpose",
    ),
    Fault(
        Make(split_v=split_view),
        "operands",
        ("split:v",),
        "a view without transpose",
        "values split by a view without transpose",
    ),
    scaled(lambda _: 1.0, "1", "unscaled scores"),
    scaled(lambda s: s.d_model**-0.5, "1/sqrt(d_model)", "scale 1/sqrt(d_model)"),
    scaled(lambda s: 1 / s.head_dim, "1/head_dim", "scale 1/head_dim"),
    scaled(lambda s: s.heads**-0.5, "1/sqrt(num_heads)", "scale 1/sqrt(num_heads)"),
    scaled(lambda s: s.t_k**-0.5, "1/sqrt(T_k)", "scale 1/sqrt(T_k)"),
    scaled(lambda s: s.head_dim**0.5, "sqrt(head_dim)", "scale sqrt(head_dim)"),
    scaled(lambda s: 1 / s.d_model, "1/d_model", "scale 1/d_model"),
    scaled(lambda _: 0.37, "constant 0.37", "scale 0.37"),
    Fault(
        Make(gain_q=lambda s: s.head_dim**-0.5),
        "scores",
        ("scale",),
        "1/head_dim",
        "scale 1/head_dim",
    ),
    axis((2,), "queries", "the query axis"),
    axis((1,), "heads", "the head axis"),
    axis((0,), "batch", "the batch axis"),
    axis((1, 3), "heads and keys", "the head and key axes together"),
    axis((2, 3), "queries and keys", "the query and key axes together"),
    axis((0, 1), "batch and heads", "the batch and head axes together"),
    weighed(lambda x: x, "normaliser", "none", "no softmax"),
    weighed(torch.sigmoid, "normaliser", "sigmoid", "sigmoid in place of the softmax"),
    weighed(torch.relu, "normaliser", "relu", "relu in place of the softmax"),
    weighed(
        lambda x: x.relu() / x.relu().sum(-1, keepdim=True),
        "normaliser",
        "relu over its sum",
        "relu over its sum in place of the softmax",
    ),
    weighed(
        lambda x: x.softmax(-1).softmax(-1),
        "repeated-softmax",
        "keys twice",
        "softmax applied twice over the key axis",
    ),
    weighed(
        lambda x: x.softmax(-1) * 0.25,
        "scale-after",
        "constant 0.25",
        "weights multiplied by 0.25",
    ),
    Fault(
        Make(after=lambda s: s.head_dim**-0.5),
        "weights",
        ("scale-after",),
        "1/sqrt(head_dim)",
        "weights multiplied by 1/sqrt(head_dim)",
    ),
    Fault(
        Make(context=lambda w, k, _: w @ k),
        "context",
        ("roles",),
        "weights times keys",
        "weights times keys",
    ),
    Fault(
        Make(context=lambda w, _, v: w.mT @ v),
        "context",
        ("softmax-axis",),
        "contracted over queries",
        "weights contracted over the query axis",
        crosses=False,
    ),
    merged(
        lambda y: y,
        "reshape without transpose",
        "heads merged by a reshape without transpose",
    ),
    merged(
        lambda y: y.transpose(0, 1),
        "heads first, read as batch first",
        "heads merged as if the batch came first",
    ),
    merged(
        lambda y: y.permute(1, 2, 0, 3),
        "order (h, T, B, d)",
        "heads merged from the axis order (h, T, B, d)",
    ),
    Fault(
        Make(project=lambda m, _w, _b: m),
        "output",
        ("output-projection",),
        "absent",
        "no output projection",
    ),
    Fault(
        Make(project=lambda m, w, b: (m @ w.T + b) @ w.T + b),
        "output",
        ("output-projection",),
        "twice",
        "the output projection applied twice",
    ),
]
IDS = [f"{fault.keys[0]} {fault.name}" for fault in FAULTS]


def check(fault: Fault, first: Size, second: Size | None) -> None:
    verdict = compare(
        make_site(first, fault.make), None if second is None else make_site(second, fault.make)
    )
    assert verdict.verdict == "mismatch"
    assert not verdict.unexplained
    assert verdict.departs_at == fault.stage
    assert [(d.key, d.name) for d in verdict.deviations] == [(k, fault.name) for k in fault.keys]
    assert verdict.max_abs_error is not None and verdict.tolerance is not None
    assert verdict.max_abs_error > 1e-3 > verdict.tolerance
    for deviation in verdict.deviations:
        assert deviation.max_difference < 1e-12
        assert deviation.equivalent == ()
        start = f"output equals the reference with {fault.phrase} (max difference "
        assert deviation.sentence.startswith(start)
        assert confirm(verdict, deviation.key) == deviation.sentence


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_alone_in_self_attention(fault: Fault) -> None:
    check(fault, FIRST, SECOND)


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_alone_at_one_size(fault: Fault) -> None:
    check(fault, FIRST, None)


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.crosses])
def test_alone_in_cross_attention(fault: Fault) -> None:
    check(fault, CROSS_FIRST, CROSS_SECOND)


def test_no_two_deviations_give_one_output() -> None:
    for size in (FIRST, SECOND):
        outputs = {"right": make_site(size).output}
        for label, fault in zip(IDS, FAULTS, strict=True):
            if fault.make.gain_q(size) == 1:  # a gain on q is the same scale, in another place
                outputs[label] = make_site(size, fault.make).output
        for (one, y), (other, z) in combinations(outputs.items(), 2):
            assert y is not None and z is not None
            assert y.shape != z.shape or (y - z).abs().max().item() > 1e-6, (one, other)
