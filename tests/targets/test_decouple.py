"""Equal widths pulled apart one at a time, and the error that tells what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_lint.targets.subject import Decoupled, Subject

Open = Callable[..., object]

CROSS = """
class Cross(nn.Module):
    def __init__(self, d_model, kdim, vdim, heads):
        super().__init__()
        self.h = heads
        self.q, self.k = nn.Linear(d_model, d_model), nn.Linear(kdim, d_model)
        self.v, self.o = nn.Linear(vdim, d_model), nn.Linear(d_model, d_model)

    def forward(self, q, k, v):
        width = MERGED
        q, k, v = (f(t).unflatten(-1, (self.h, -1)).transpose(1, 2)
                   for f, t in ((self.q, q), (self.k, k), (self.v, v)))
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(y.shape[0], y.shape[2], width))
"""
CALL = "torch.randn(2, 5, 24), torch.randn(2, 7, 24), v=torch.randn(2, 7, 24)"


def decoupled(opened: Open, merged: str) -> dict[str, Decoupled]:
    source = CROSS.replace("MERGED", merged)
    subject = opened(source, "Cross", build="Cross(24, 24, 24, 4)", call=CALL)
    assert isinstance(subject, Subject)
    return {one.change.partition(",")[0]: one for one in subject.decoupled()}


def test_each_input_follows_the_layer_that_reads_it(opened: Open) -> None:
    found = decoupled(opened, "-1")
    assert {change: one.subject.call for change, one in found.items() if one.subject} == {
        "d_model 24 -> 36": CALL.replace("5, 24", "5, 36"),
        "kdim 24 -> 36": CALL.replace("7, 24), v", "7, 36), v"),
        "vdim 24 -> 36": CALL.replace("v=torch.randn(2, 7, 24)", "v=torch.randn(2, 7, 36)"),
    }


@pytest.mark.parametrize("merged", ["k.shape[-1]", "v.shape[-1]"])
def test_the_error_of_the_call_that_fits_is_told(merged: str, opened: Open) -> None:
    found = decoupled(opened, merged)
    one = found["d_model 24 -> 36"]
    assert one.subject is None
    assert str(one.error) == "shape '[2, 5, 24]' is invalid for input of size 360"
    assert found["kdim 24 -> 36"].error is None or merged == "k.shape[-1]"


PRODUCT = """
class Raw(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.h, self.d = heads, dim_head
        self.w = nn.Parameter(torch.randn(3, heads * dim_head, dim))
        self.o = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        q, k, v = ((x @ w.mT).unflatten(-1, (self.h, self.d)).transpose(1, 2) for w in self.w)
        y = (q @ k.mT / self.d**0.5).softmax(-1) @ v
        return self.o(y.transpose(1, 2).flatten(2))
"""


def test_a_head_width_whose_product_is_the_width_is_changed_alone(opened: Open) -> None:
    subject = opened(PRODUCT, "Raw", build="Raw(24, 4, 6)", call="torch.randn(2, 5, 24)")
    assert isinstance(subject, Subject)
    (one,) = subject.decoupled()
    assert one.change == "dim_head 6 -> 8, dim stays 24"
    assert one.subject is not None and one.subject.build == "Raw(24, 4, 8)"


def test_a_head_width_of_its_own_coincides_with_nothing(opened: Open) -> None:
    subject = opened(PRODUCT, "Raw", build="Raw(24, 4, 5)", call="torch.randn(2, 5, 24)")
    assert isinstance(subject, Subject)
    assert subject.decoupled() == []
