"""The same subject at other sizes, with widths pulled apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.sizes import bench_of, user_line
from mha_lint.model.facts import Dims
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

Known = Callable[[Any], Any]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_measured_at_a_second_size(name: str, measured: Measure) -> None:
    spelling = SPELLINGS[name]
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    second = case.measured.second
    assert second is not None
    assert [s.kind for s in second.bench.sites] == [spelling.kind]
    assert second.subject.build != spelling.build


def test_nothing_breaks_in_right_code(measured: Measure, known: Known) -> None:
    for spelling in SPELLINGS.values():
        case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
        assert known(case.facts.size_failures) == ()


RAW = """\
class Raw(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_out // num_heads
        self.w_q = nn.Parameter(torch.randn(d_out, d_in) / d_in**0.5)
        self.w_k = nn.Parameter(torch.randn(d_out, d_in) / d_in**0.5)
        self.w_v = nn.Parameter(torch.randn(d_out, d_in) / d_in**0.5)
        self.out_proj = nn.Linear(d_out, d_out)

    def split(self, z):
        return z.view(z.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def forward(self, x):
        q = self.split(x @ self.w_q.T)
        k = self.split(x @ self.w_k.T)
        v = self.split(x @ self.w_v.T)
        weights = (q @ k.mT / math.sqrt(self.d_k)).softmax(-1)
        merged = (weights @ v).transpose(1, 2).flatten(2)
        return self.out_proj(merged)
"""
GROWN = "d_in 24 -> 36, d_out stays 24"


def raw(measured: Measure, *edits: tuple[str, str]) -> Case:
    return measured(*edits, text=RAW, build="Raw(24, 24, 4)", call="torch.randn(2, 5, 24)")


def test_widths_pulled_apart_in_right_code(measured: Measure, known: Known) -> None:
    assert known(raw(measured).facts.size_failures) == ()


def test_heads_merged_into_the_width_of_the_input(measured: Measure, known: Known) -> None:
    case = raw(
        measured,
        (
            "(weights @ v).transpose(1, 2).flatten(2)",
            "(weights @ v).transpose(1, 2).reshape(x.shape)",
        ),
    )
    found, other = known(case.facts.size_failures)
    assert (found.change, found.kind) == (GROWN, "merge-width")
    assert other.change == "d_out 24 -> 36, d_in stays 24"
    assert found.error == "RuntimeError: shape '[2, 5, 36]' is invalid for input of size 240"
    assert found.detail == "the heads are merged into another width than they have"
    assert found.span.line == case.line("merged = ")


def test_heads_split_by_the_width_of_the_input(measured: Measure, known: Known) -> None:
    case = raw(measured, ("d_out // num_heads", "d_in // num_heads"))
    found, _ = known(case.facts.size_failures)
    assert found.kind in ("head-width", "merge-width", "other")
    assert "RuntimeError" in found.error


def test_a_weight_used_the_wrong_way_round(measured: Measure, known: Known) -> None:
    case = raw(measured, ("x @ self.w_v.T", "x @ self.w_v"))
    found, _ = known(case.facts.size_failures)
    assert (found.change, found.kind) == (GROWN, "weight-orientation")
    assert found.detail == "w_v is contracted over its axis 0"
    assert found.error == (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (10x36 and 24x36)"
    )
    assert case.marked(found.span) == "x @ self.w_v"


def test_heads_merged_into_the_width_of_the_source(measured: Measure, known: Known) -> None:
    case = measured(
        (".flatten(2)", ".reshape(x.size(0), -1, memory.size(-1))"),
        text=SPELLINGS["cross"].text,
        build="CrossAttention(24, 24, 4)",
        call="torch.randn(2, 5, 24), torch.randn(2, 7, 24)",
    )
    (found, *_) = known(case.facts.size_failures)
    assert found.kind == "merge-width"
    assert found.span.line == case.line("return self.out_proj")


def test_a_head_count_that_is_not_heeded(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = d_model // 6"),
        ("self.d_k = d_model // num_heads", "self.d_k = 6"),
        build="MHA(24, 8)",
    )
    assert known(case.site.dims) == Dims(24, 4, 4, 6, 6, 5, 5, 2)
    (found,) = known(case.facts.size_failures)
    assert (found.change, found.kind, found.error) == ("num_heads=8", "head-width", "")
    assert found.detail.startswith("the code splits into 4 heads, and into 4 with num_heads=")


def test_what_divides_the_width_may_be_no_head_count(measured: Measure, known: Known) -> None:
    case = measured(
        ("def __init__(self, d_model, num_heads)", "def __init__(self, d_model, side)"),
        ("self.h = num_heads", "self.h = d_model // 6"),
        ("self.d_k = d_model // num_heads", "self.d_k = 6 + 0 * (d_model // side)"),
        build="MHA(24, 8)",
    )
    assert known(case.facts.size_failures) == ()


def test_the_users_line_of_an_error() -> None:
    try:
        raise RuntimeError("here")
    except RuntimeError as error:
        span = user_line(error, __file__)
        elsewhere = user_line(error, "other.py")
    assert span is not None
    assert (span.path, span.column) == (__file__, 9)
    assert elsewhere is None


PRODUCT = """\
class Raw(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.h, self.d = heads, dim_head
        self.w = nn.Parameter(torch.randn(3, heads * dim_head, dim))
        self.o = nn.Parameter(torch.randn(dim, heads * dim_head))

    def forward(self, x):
        w_q, w_k, w_v = self.w
        q, k, v = (y.unflatten(-1, (self.h, self.d)).transpose(1, 2) for y in (x @ w_q.T, x @ w_k.T, x @ w_v.T))
        y = (q @ k.mT / self.d**0.5).softmax(-1) @ v
        return y.transpose(1, 2).flatten(2) @ self.o.T
"""


@pytest.mark.parametrize(
    ("edit", "detail", "marked"),
    [
        (("x @ w_v.T", "x @ w_v"), "w is contracted over its axis 0", "x @ w_v"),
        (("@ self.o.T", "@ self.o"), "o is contracted over its axis 0", "@ self.o"),
        (
            ("y.transpose(1, 2).flatten(2) @ self.o.T", "F.linear(y.transpose(1, 2).flatten(2), self.o.T)"),
            "o is contracted over its axis 0",
            "self.o.T)",
        ),
    ],
)  # fmt: skip
def test_a_weight_turned_while_heads_times_head_width_is_the_width(
    edit: tuple[str, str], detail: str, marked: str, measured: Measure, known: Known
) -> None:
    case = measured(edit, text=PRODUCT, build="Raw(24, 4, 6)")
    (found,) = known(case.facts.size_failures)
    assert (found.kind, found.detail) == ("weight-orientation", detail)
    assert found.change == "dim_head 6 -> 8, dim stays 24"
    assert marked in case.marked(found.span)
    right = measured(text=PRODUCT, build="Raw(24, 4, 6)")
    assert known(right.facts.size_failures) == ()


def test_a_residual_of_another_width_is_not_the_heads_business(
    measured: Measure, known: Known
) -> None:
    case = raw(measured, ("return self.out_proj(merged)", "return x + self.out_proj(merged)"))
    assert {f.kind for f in known(case.facts.size_failures)} == {"other"}


def test_a_second_size_that_computes_far_more_is_left_out(
    measured: Measure,
) -> None:
    spelling = next(iter(SPELLINGS.values()))
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    assert case.measured.second is not None
    other = case.measured.second.subject
    assert bench_of(other, most=100) is None
    assert bench_of(other) is not None
