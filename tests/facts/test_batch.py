"""Attention over the batch: only where the code or the call tells which axis is the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.batch import measure_batch

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

OVER_FIRST = """\
class Sequence(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads)
        self.head = nn.Linear(d_model, 3)

    def forward(self, x):
        out, _ = self.attention(x, x, x, need_weights=False)
        return self.head({pooled})
"""
CALL = "torch.randn(3, 7, 24)"


def test_pooling_over_positions_says_what_the_batch_is(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=1)")
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    found = known(case.facts.batch)
    assert (found.mixes, found.axis, found.intended, found.inferred) == (True, 0, False, False)
    assert found.why_batch == "the code pools over axis 1: out.mean(dim=1)"
    assert found.largest > 1e-3
    assert found.span.line == case.line("self.attention(x")
    assert case.facts.batch.evidence == (  # type: ignore[union-attr]
        "changing sample 0 of x alone changes the outputs of the other samples by up to"
        f" {found.largest:.1g}; axis 1 is never attended over"
    )


def test_time_first_code_is_right(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=0)")
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    assert known(case.facts.batch).mixes is False
    assert known(case.facts.batch).largest == 0
    assert case.facts.batch.evidence == (  # type: ignore[union-attr]
        "axis 0 of x, which attention runs over, holds positions: the code pools over axis 0:"
        " out.mean(dim=0)"
    )


def test_batch_first_is_right(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=1)").replace(
        "(d_model, num_heads)\n        self.head",
        "(d_model, num_heads, batch_first=True)\n        self.head",
    )
    assert "batch_first" in text
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    assert known(case.facts.batch).mixes is False


def test_the_plain_module(measured: Measure, known: Known) -> None:
    found = known(measured().facts.batch)
    assert (found.mixes, found.axis, found.span) == (False, 0, None)
    assert measured().facts.batch.evidence == (  # type: ignore[union-attr]
        "attention runs over no axis of samples"
    )


SPLIT = "view(B, T, self.h, self.d_k).transpose(1, 2)"


def test_a_shape_that_is_unpacked_names_the_batch(measured: Measure, known: Known) -> None:
    edits = [
        (f"{w} = self.{w}_proj(x).{SPLIT}",
         f"{w} = self.{w}_proj(x).view(B, T, self.h, self.d_k).permute(1, 2, 0, 3)")
        for w in "qkv"
    ]  # fmt: skip
    case = measured(
        *edits,
        (
            "context.transpose(1, 2).reshape(B, T, C)",
            "context.permute(2, 0, 1, 3).reshape(B, T, C)",
        ),
    )
    found = known(case.facts.batch)
    assert (found.mixes, found.inferred) == (True, False)
    assert found.why_batch == "the code says B, T, C = x.shape"
    assert found.span.line == case.line("scores = q @")


def test_what_the_call_alone_says_is_inferred(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out")
    found = known(measured(text=text, build="Sequence(24, 4)", call=CALL).facts.batch)
    assert (found.mixes, found.inferred) == (True, True)
    assert found.why_batch == "the call passes 3 x 7, fewer samples than positions"
    longer = measured(text=text, build="Sequence(24, 4)", call="torch.randn(7, 3, 24)")
    assert known(longer.facts.batch).mixes is False


def test_where_nothing_tells_the_batch_it_stays_open(measured: Measure, why: Why) -> None:
    text = OVER_FIRST.format(pooled="out")
    case = measured(text=text, build="Sequence(24, 4)", call="torch.randn(7, 7, 24)")
    assert why(case.facts.batch) == (
        "Unknown",
        "attention runs over axis 0 of x (7, 7, 24), and nothing says whether that axis holds"
        " samples or positions: pass a call with fewer samples than positions",
    )


def test_a_guessed_call_tells_nothing_of_the_batch(measured: Measure, why: Why) -> None:
    text = OVER_FIRST.format(pooled="out")
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    fact = measure_batch(case.bench, case.bench.sites, case.subject.module, text, guessed=True)
    kind, reason = why(fact)
    assert kind == "Unknown"
    assert reason.startswith("attention runs over axis 0 of x (3, 7, 24), and nothing says")


def test_more_samples_than_positions_would_be_time_first(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out")
    case = measured(text=text, build="Sequence(24, 4)", call="torch.randn(9, 2, 24)")
    assert known(case.facts.batch).mixes is False
    assert case.facts.batch.evidence == (  # type: ignore[union-attr]
        "axis 0 of x, which attention runs over, holds positions: the call passes 9 x 2, more than"
        " axis 1 has"
    )


def test_an_axis_of_one_entry_tells_nothing(measured: Measure, known: Known, why: Why) -> None:
    text = OVER_FIRST.format(pooled="out")
    case = measured(text=text, build="Sequence(24, 4)", call="torch.randn(3, 1, 24)")
    assert known(case.facts.batch).mixes is False  # more than one: time-first
    text = OVER_FIRST.format(pooled="out[:, 0]")
    case = measured(text=text, build="Sequence(24, 4)", call="torch.randn(3, 1, 24)")
    assert why(case.facts.batch) == (
        "Unknown",
        "attention runs over axis 0 of x, and the other axis has one entry: pass a call with several"
        " samples and several positions",
    )


LINEAR = """\
class Kernel(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        q, k = (F.elu(f(x)) + 1 for f in (self.q, self.k))
        return torch.einsum("{queries}", q, torch.einsum("{keys}", k, self.v(x)))
"""


def test_linear_attention_is_told_by_its_outputs(measured: Measure, known: Known, why: Why) -> None:
    text = LINEAR.format(queries="btc,bcd->btd", keys="btc,btd->bcd")
    case = measured(text=text, build="Kernel(24)", call=CALL)
    assert [s.info.kind.value for s in case.facts.sites] == ["linear"]
    assert known(case.facts.batch).mixes is False
    text = LINEAR.format(queries="tbc,bcd->tbd", keys="tbc,tbd->bcd")
    other = measured(text=text, build="Kernel(24)", call=CALL)
    assert why(other.facts.batch) == (
        "Unknown",
        "samples influence each other or the first axis holds positions, which cannot be told apart"
        " for this kind of attention",
    )


POOLED = """\
class Pool(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.asks = nn.Parameter(torch.randn(3, d_model))
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.o = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q(self.asks).view(3, self.h, -1)
        k, v = (f(x).view(B, T, self.h, -1) for f in (self.k, self.v))
        weights = (torch.einsum("{scores}", q, k) * (C // self.h) ** -0.5).softmax(-1)
        return self.o(torch.einsum("{values}", weights, v).flatten(2))
"""


def test_learned_queries_over_the_batch(measured: Measure, known: Known) -> None:
    text = POOLED.format(scores="shd,bthd->bhst", values="bhst,bthd->bshd")
    case = measured(text=text, build="Pool(24, 4)", call=CALL)
    assert known(case.facts.batch).mixes is False
    text = POOLED.format(scores="shd,bthd->thsb", values="thsb,bthd->tshd")
    case = measured(text=text, build="Pool(24, 4)", call=CALL)
    found = known(case.facts.batch)
    assert (found.mixes, found.why_batch) == (True, "the code says B, T, C = x.shape")
    assert found.span.line == case.line("weights = ")


@pytest.mark.parametrize(
    ("comment", "mixes"),
    [("# x: (batch, seq, d_model)", True), ("# x: (seq_len, batch, d_model)", False)],
)
def test_a_comment_says_which_axis(
    comment: str, mixes: bool, measured: Measure, known: Known
) -> None:
    text = OVER_FIRST.format(pooled="out").replace(
        "        out, _", f"        {comment}\n        out, _"
    )
    found = known(measured(text=text, build="Sequence(24, 4)", call=CALL).facts.batch)
    assert found.mixes is mixes
    if mixes:
        assert found.why_batch == "a comment or docstring writes the shape batch-first"
        assert found.inferred is True


def test_an_exchange_between_samples_may_be_meant(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=1)").replace(
        "        out, _",
        '        """Let samples of a batch attend to one another."""\n        out, _',
    )
    found = known(measured(text=text, build="Sequence(24, 4)", call=CALL).facts.batch)
    assert (found.mixes, found.intended) == (True, True)


FEW_DIMENSIONS = """\
class Table(nn.Module):
    def __init__(self, columns, d_model, num_heads):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns, d_model))
        self.token = nn.Parameter(torch.zeros(1, 1, d_model))
        self.attention = nn.MultiheadAttention(d_model, num_heads)
        self.head = nn.Linear(d_model, 2)

    def forward(self, x):
        tokens = x.unsqueeze(-1) * self.scale
        tokens = torch.cat([self.token.expand(x.size(0), -1, -1), tokens], 1)
        out, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.head({read})
"""


@pytest.mark.parametrize(("read", "seen_in"), [("out[:, 1]", "outputs"), ("out[:, 0]", "states")])
def test_tokens_that_are_made_inside(
    read: str, seen_in: str, measured: Measure, known: Known
) -> None:
    text = FEW_DIMENSIONS.format(read=read)
    case = measured(text=text, build="Table(7, 24, 4)", call="torch.randn(3, 7)")
    found = known(case.facts.batch)
    assert (found.mixes, found.inferred, found.seen_in) == (True, False, seen_in)
    assert found.largest > 1e-3
    assert found.span.line == case.line("self.attention(tokens")


INNER = """\
class Over(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        {names}
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 1, 3, 0, 4)
        y = (q @ k.mT / 6**0.5).softmax(-1) @ v
        return self.out_proj(y.permute(2, 0, 1, 3).flatten(2))


class Outer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.local = nn.Conv1d(d_model, d_model, 3, padding=1)
        self.inner = Over(d_model, num_heads)

    def forward(self, x):
        return self.inner({fed})
"""


@pytest.mark.parametrize(
    ("names", "fed", "why"),
    [
        ("batch, time, width = x.shape", "x", "the code says batch, time, width = x.shape"),
        ("pass", "x + self.local(x.mT).mT", "a convolution treats it as its samples"),
    ],
)
def test_an_inner_class_or_a_convolution_tells_the_batch(
    names: str, fed: str, why: str, measured: Measure, known: Known
) -> None:
    case = measured(text=INNER.format(names=names, fed=fed), build="Outer(24, 4)", call="torch.randn(5, 3, 24)")  # fmt: skip
    found = known(case.facts.batch)
    assert (found.mixes, found.why_batch, found.inferred) == (True, why, False)


def test_a_convolution_over_axis_0_tells_positions(measured: Measure, known: Known) -> None:
    fed = "x + self.local(x.permute(1, 2, 0)).permute(2, 0, 1)"
    case = measured(text=INNER.format(names="pass", fed=fed), build="Outer(24, 4)", call="torch.randn(3, 7, 24)")  # fmt: skip
    assert known(case.facts.batch).mixes is False
    assert "a convolution runs over it" in case.facts.batch.evidence  # type: ignore[union-attr]


COLUMNS = """\
class ColumnAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        {unpacked} = x.size()
        q, k, v = self.qkv(x).view(*x.shape[:3], 3, self.heads, -1).unbind(3)
        scores = torch.einsum("icnhd,jcnhd->hcnij", q, k) / q.size(-1) ** 0.5
        context = torch.einsum("hcnij,jcnhd->icnhd", scores.softmax(-1), v)
        return self.out(context.reshape(x.shape))
"""


@pytest.mark.parametrize(
    ("unpacked", "mixes"),
    [("rows, cols, batch_size, width", False), ("n, rows, cols, width", True)],
)
def test_a_map_whose_batch_is_not_first(
    unpacked: str, mixes: bool, measured: Measure, known: Known
) -> None:
    """Attention over the rows of an alignment, (rows, columns, batch, width)."""
    case = measured(
        text=COLUMNS.format(unpacked=unpacked),
        build="ColumnAttention(24, 4)",
        call="torch.randn(5, 3, 2, 24)",
    )
    assert known(case.facts.batch).mixes is mixes


MERGED = "merged = context.transpose(1, 2).reshape(B, T, C)"


@pytest.mark.parametrize("order", ["2, 0, 1, 3", "2, 0, 3, 1"])
def test_a_merge_that_deals_positions_out_to_samples(
    order: str, measured: Measure, known: Known
) -> None:
    """(B, h, T, d) is read as (T, B, h, d), and viewed as (B, T, C): T is a multiple of B."""
    case = measured(
        (MERGED, f"merged = context.permute({order}).reshape(B, T, C)"),
        call="torch.randn(3, 6, 24)",
    )
    found = known(case.facts.batch)
    assert (found.mixes, found.why_batch) == (True, "the code says B, T, C = x.shape")
    assert case.marked(found.span) == f"context.permute({order})"
    assert known(measured(call="torch.randn(3, 6, 24)").facts.batch).mixes is False
