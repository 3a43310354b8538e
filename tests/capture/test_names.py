"""Every spelling of an operation has one name, and its arguments one form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mha_lint.capture import Recording, Replay

Recorded = Callable[..., Recording]
A = torch.ops.aten
TORCH: Any = torch  # some spellings work but are missing from the stubs

SPELLINGS: list[tuple[str, str, list[Callable[[Any, Any], Any]]]] = [
    ("matmul", "(x, y)", [
        lambda x, y: x @ y, lambda x, y: torch.matmul(x, y), lambda x, y: x.matmul(y),
        lambda x, y: torch.mm(x, y), lambda x, y: x.mm(mat2=y), lambda x, y: A.mm(x, y),
        lambda x, y: A.matmul.default(x, y), lambda x, y: torch.matmul(input=x, other=y),
        lambda x, y: x.__matmul__(y), lambda x, y: y.__rmatmul__(x),
    ]),
    ("add", "(x, y)", [
        lambda x, y: x + y, lambda x, y: torch.add(x, y), lambda x, y: x.add(other=y),
        lambda x, y: A.add.Tensor(x, y), lambda x, y: x.__add__(y),
    ]),
    ("sub", "(1.0, x)", [lambda x, y: 1.0 - x, lambda x, y: x.__rsub__(1.0)]),
    ("div", "(1.0, x)", [lambda x, y: 1.0 / x]),
    ("pow", "(2.0, x)", [lambda x, y: 2.0**x]),
    ("div", "(x, 2.0)", [
        lambda x, y: x / 2.0, lambda x, y: torch.div(x, 2.0), lambda x, y: x.divide(2.0),
        lambda x, y: torch.true_divide(x, 2.0),
    ]),
    ("mul", "(x, 2.0)", [lambda x, y: x * 2.0, lambda x, y: 2.0 * x, lambda x, y: x.multiply(2.0)]),
    ("softmax", "(x,) {'dim': -1}", [
        lambda x, y: x.softmax(-1), lambda x, y: torch.softmax(x, -1),
        lambda x, y: F.softmax(x, dim=-1), lambda x, y: torch.nn.Softmax(dim=-1)(x),
        lambda x, y: torch.special.softmax(x, -1), lambda x, y: A._softmax(x, -1, False),
        lambda x, y: x.softmax(dim=-1), lambda x, y: A._safe_softmax.default(x, -1),
    ]),
    ("log_softmax", "(x,) {'dim': 1}", [
        lambda x, y: F.log_softmax(x, 1), lambda x, y: x.log_softmax(dim=1),
    ]),
    ("masked_fill", "(x, y, -1.0)", [
        lambda x, y: x.masked_fill(y > 0, -1.0), lambda x, y: torch.masked_fill(x, y > 0, -1.0),
        lambda x, y: x.masked_fill(mask=y > 0, value=-1.0),
    ]),
    ("where", "(gt, x, y)", [
        lambda x, y: torch.where(y > 0, x, y), lambda x, y: x.where(y > 0, y),
    ]),
    ("transpose", "(x, 0, 1)", [
        lambda x, y: x.transpose(0, 1), lambda x, y: torch.transpose(x, 0, 1), lambda x, y: x.t(),
        lambda x, y: x.swapaxes(0, 1), lambda x, y: torch.swapdims(x, dim0=0, dim1=1),
    ]),
    ("permute", "(x, (1, 0))", [
        lambda x, y: x.permute(1, 0), lambda x, y: x.permute((1, 0)),
        lambda x, y: torch.permute(x, (1, 0)), lambda x, y: x.permute(dims=[1, 0]),
    ]),
    ("view", "(x, (2, 8))", [lambda x, y: x.view(2, 8), lambda x, y: x.view((2, 8)),
                             lambda x, y: x.view([2, 8]), lambda x, y: x.view(size=(2, 8))]),
    ("reshape", "(x, (2, -1))", [lambda x, y: x.reshape(2, -1),
                                 lambda x, y: torch.reshape(x, (2, -1))]),
    ("expand", "(unsqueeze, (3, -1, -1))", [lambda x, y: x.unsqueeze(0).expand(3, -1, -1)]),
    ("einsum", "('ij,jk->ik', x, y)", [
        lambda x, y: torch.einsum("ij,jk->ik", x, y),
        lambda x, y: torch.einsum("ij,jk->ik", [x, y]),
        lambda x, y: torch.functional.einsum("ij,jk->ik", x, y),
    ]),
    ("einsum", "('AB,BC->AC', x, y)", [lambda x, y: torch.einsum(x, [0, 1], y, [1, 2], [0, 2])]),
    ("sum", "(x,) {'dim': 1, 'keepdim': True}", [
        lambda x, y: x.sum(1, True), lambda x, y: x.sum(dim=1, keepdim=True),
        lambda x, y: TORCH.sum(x, axis=1, keepdim=True),
    ]),
    ("cat", "([x, y],) {'dim': -1}", [
        lambda x, y: torch.cat([x, y], -1), lambda x, y: torch.cat([x, y], dim=-1),
        lambda x, y: TORCH.concat([x, y], axis=-1),
    ]),
    ("index", "(x, 0)", [lambda x, y: x[0], lambda x, y: x.__getitem__(0)]),
    ("dropout", "(x,) {'p': 0.5, 'training': False}", [
        lambda x, y: F.dropout(x, 0.5, False), lambda x, y: torch.nn.Dropout(0.5).eval()(x),
        lambda x, y: torch.dropout(x, p=0.5, train=False),
        lambda x, y: F.alpha_dropout(x, 0.5, False),
    ]),
    ("T", "(x, 'T')", [lambda x, y: x.T]),
    ("mT", "(x, 'mT')", [lambda x, y: x.mT]),
    ("clamp", "", [lambda x, y: x.clamp(min=0), lambda x, y: torch.clip(x, 0)]),
    ("neg", "(x,)", [lambda x, y: -x, lambda x, y: torch.negative(x)]),
    ("baddbmm", "(unsqueeze, unsqueeze_1, unsqueeze_2) {'beta': 0.5}", [
        lambda x, y: torch.baddbmm(
            x.unsqueeze(0), x.unsqueeze(0), y.unsqueeze(0), beta=0.5),
        lambda x, y: x.unsqueeze(0).baddbmm(x.unsqueeze(0), y.unsqueeze(0), beta=0.5),
    ]),
]  # fmt: skip
CASES = [
    pytest.param(op, form, call, id=f"{op}-{i}")
    for op, form, calls in SPELLINGS
    for i, call in enumerate(calls)
]


@pytest.mark.parametrize(("op", "form", "call"), CASES)
def test_spelling(op: str, form: str, call: Callable[[Any, Any], Any], recorded: Recorded) -> None:
    x, y = torch.rand(4, 4) + 0.5, torch.randn(4, 4)
    recording = recorded(lambda x, y: call(x, y), x, y)
    node = recording.outputs[0]
    assert node.meta["op"] == op
    args = str(node.args)
    text = f"{args} {dict(node.kwargs)}" if node.kwargs else args
    if op == "masked_fill":
        assert node.args[0] is recording.placeholders[0]
        assert node.args[1].meta["op"] == "gt"  # type: ignore[union-attr]
        assert node.args[2] == -1.0
    elif form:
        assert text == form
    native = call(x, y)
    torch.testing.assert_close(Replay(recording, dtype=None).base(node), native)
    torch.testing.assert_close(Replay(recording).base(node), native.double(), rtol=1e-5, atol=1e-6)


IN_PLACE: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("masked_fill", lambda x, y: x.masked_fill_(y > 0, -1.0)),
    ("mul", lambda x, y: x.mul_(y)),
    ("add", lambda x, y: x.add_(y, alpha=2)),
    ("div", lambda x, y: x.div_(2.0)),
    ("setitem", lambda x, y: x.__setitem__(0, y[0])),
    ("relu", lambda x, y: F.relu(x, inplace=True)),
    ("copy", lambda x, y: x.copy_(y)),
    ("softmax", lambda x, y: torch.softmax(y, -1, out=x)),
    ("matmul", lambda x, y: torch.matmul(y, y, out=x)),
]


@pytest.mark.parametrize(("op", "call"), IN_PLACE, ids=[op for op, _ in IN_PLACE])
def test_in_place_spelling(op: str, call: Callable[[Any, Any], Any], recorded: Recorded) -> None:
    def forward(x: Any, y: Any) -> Any:
        z = x * 1
        call(z, y)
        return z

    recording = recorded(forward, torch.randn(4, 4), torch.randn(4, 4))
    assert recording.outputs[0].meta["op"] == op


def test_augmented_assignment_is_the_plain_operation(recorded: Recorded) -> None:
    def forward(x: Any) -> Any:
        z = x * 1
        z += x
        z *= 2.0
        z -= 1
        z /= 3.0
        return z

    recording = recorded(forward, torch.randn(3))
    names = [n.meta["op"] for n in recording.graph.nodes if n.op == "call_function"]
    assert names == ["mul", "add", "mul", "sub", "div"]


def test_implicit_softmax_axis_is_noted(recorded: Recorded, only: Any) -> None:
    node = only(recorded(lambda x: F.softmax(x), torch.randn(2, 3, 4)), "softmax")
    assert node.kwargs == {"dim": 0}
    assert node.meta["implicit_dim"] is True
    stated = only(recorded(lambda x: F.softmax(x, 0), torch.randn(2, 3, 4)), "softmax")
    assert "implicit_dim" not in stated.meta
