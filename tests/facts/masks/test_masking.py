"""How masks act at a site: the steps as plain data, and what is wrong with some."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.mask_facts import Masking, MaskStep
from tests.facts.masks.spelled import CAUSAL, LIBRARY, fused, masked

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

INF = float("inf")
MASKED_CALL = "torch.randn(2, 5, 24), torch.arange(5)[None] < torch.tensor([[5], [3]])"
SOFTMAX = "        weights = scores.softmax(dim=-1)\n"


def given(text: str) -> str:
    """Return `text` with a mask as the second argument."""
    return text.replace("forward(self, x)", "forward(self, x, keep)")


def behind(*lines: str) -> str:
    """Return the plain module with `lines` behind its softmax, and a mask as argument."""
    return given(masked()).replace(SOFTMAX, SOFTMAX + "".join(f"        {x}\n" for x in lines))


def ahead(*lines: str) -> str:
    """Return the plain module with `lines` ahead of its softmax, and a mask as argument."""
    return given(masked(*lines))


def masking(case: Case) -> Masking:
    fact: Any = case.site.masking
    assert isinstance(fact.value, Masking)
    return fact.value


# --- the steps -------------------------------------------------------------------------------------


def test_no_mask(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    assert why(measured().site.masking) == (
        "NotApplicable",
        "no mask is joined to the scores or the weights",
    )


def test_a_mask_that_is_an_argument(measured: Measure) -> None:
    case = measured(
        text=ahead(
            "hidden = ~keep[:, None, None]",
            "scores = scores.masked_fill(hidden, -1e9)",
        ),
        call=MASKED_CALL,
    )
    (step,) = masking(case).steps
    assert (step.on, step.how, step.fill, step.dtype, step.mask_dtype) == (
        "scores", "filled", -1e9, "float32", "bool",
    )  # fmt: skip
    assert (step.shape, step.inputs, step.buffers) == ((2, 1, 1, 5), ("keep",), ())
    assert step.made is None
    assert case.marked(step.applied) == "scores.masked_fill(hidden, -1e9)"
    assert step.hides == pytest.approx(2 / 10)


def test_where_a_mask_is_made_and_its_fill_stands(measured: Measure) -> None:
    case = measured(
        text=masked(
            "low = -1e9",
            "near = torch.ones(T, T).tril(1).triu(-1)",
            "bias = torch.zeros(T, T).masked_fill(near == 0, low)",
            "scores = scores + bias",
        )
    )
    (step,) = masking(case).steps
    assert (step.how, step.fill) == ("added", -1e9)
    assert case.marked(step.applied) == "scores + bias"
    assert step.made is not None and step.made.line == case.line("near == 0")
    assert case.marked(step.fill_at) == "low = -1e9"


def test_a_mask_in_a_buffer(measured: Measure) -> None:
    text = masked("scores = scores.masked_fill(self.tri[:T, :T] == 0, float('-inf'))").replace(
        "        self.out_proj =",
        "        self.register_buffer('tri', torch.ones(9, 9).tril())\n        self.out_proj =",
    )
    case = measured(text=text)
    (step,) = masking(case).steps
    assert (step.buffers, step.inputs, step.fill) == (("tri",), (), -INF)
    assert step.made is not None and step.made.line == case.line("self.tri[:T, :T] == 0")


def test_the_library_with_both_masks(measured: Measure) -> None:
    text = LIBRARY.replace("need_weights=NEED", "key_padding_mask=pad").replace(
        "forward(self, x)", "forward(self, x, pad)"
    )
    case = measured(
        text=text, call="torch.randn(2, 5, 24), torch.arange(5)[None] >= torch.tensor([[5], [3]])"
    )
    (step,) = masking(case).steps
    assert (step.how, step.fill, step.inputs) == ("added", -INF, ("pad",))
    assert step.hides == pytest.approx((10 + 13) / 50)


def test_every_head_of_a_loop_has_the_same_step(measured: Measure) -> None:
    (step,) = masking(measured(text=CAUSAL["head by head"][0])).steps
    assert (step.on, step.how, step.fill) == ("scores", "filled", -INF)


def test_a_learned_bias_is_no_mask(measured: Measure) -> None:
    text = masked("scores = scores + self.bias").replace(
        "        self.out_proj =",
        "        self.bias = nn.Parameter(torch.zeros(4, 5, 5))\n        self.out_proj =",
    )
    assert not hasattr(measured(text=text).site.masking, "evidence")


@pytest.mark.parametrize("name", CAUSAL)
def test_nothing_is_wrong_with_a_right_mask(name: str, measured: Measure) -> None:
    found = masking(measured(text=CAUSAL[name][0]))
    assert found == Masking(steps=found.steps)
    assert all(isinstance(s, MaskStep) for s in found.steps)


# --- behind the softmax ----------------------------------------------------------------------------

KEEP = "m = keep[:, None, None]"


@pytest.mark.parametrize(
    ("line", "fill"),
    [
        ("weights = weights * m", 0.0),
        ("weights = weights.masked_fill(~m, 0.)", 0.0),
        ("weights = torch.where(m, weights, 0.0)", 0.0),
        ("weights = weights.masked_fill(~m, float('-inf'))", -INF),
        ("weights = weights + (1 - m.float()) * -1e9", -1e9),
    ],
)
def test_weights_taken_away(line: str, fill: float, measured: Measure) -> None:
    case = measured(text=behind(KEEP, line), call=MASKED_CALL)
    (late,) = masking(case).late
    assert late.fill == fill
    assert late.span is not None and late.span.line == case.line(line)
    assert (late.pairs, late.of) == (4 * 5 * 2, 2 * 4 * 5 * 5)
    assert late.before == pytest.approx(1)
    if fill == 0:
        assert 0 < late.sums[0] < late.sums[1] < 1


@pytest.mark.parametrize(
    "lines",
    [
        ("weights = weights * m", "weights = weights / weights.sum(-1, keepdim=True)"),
        ("weights = F.normalize(weights * m, p=1, dim=-1)",),
        ("weights = weights * m.transpose(-2, -1)",),
        ("weights = weights * (weights > 0.2)",),
        ("weights = weights * torch.tensor([1., 0., 1., 1.]).view(4, 1, 1)",),
        ("weights = weights * 0.9 ** torch.arange(T)",),
    ],
)
def test_weights_that_are_right_again(lines: tuple[str, ...], measured: Measure) -> None:
    case = measured(text=behind(KEEP, *lines), call=MASKED_CALL)
    assert not hasattr(case.site.masking, "evidence") or masking(case).late == ()


def test_a_sum_divided_out_behind_the_values(measured: Measure) -> None:
    text = behind(KEEP, "weights = weights * m").replace(
        "context = weights @ v", "context = weights @ v / weights.sum(-1, keepdim=True)"
    )
    assert masking(measured(text=text, call=MASKED_CALL)).late == ()


def test_a_mask_on_both_sides(measured: Measure) -> None:
    text = ahead(KEEP, "scores = scores.masked_fill(~m, -1e9)").replace(
        SOFTMAX, SOFTMAX + "        weights = weights.masked_fill(~m, 0)\n"
    )
    found = masking(measured(text=text, call=MASKED_CALL))
    assert [s.on for s in found.steps] == ["scores", "weights"]
    assert found.late == ()


def test_nothing_is_normalised(measured: Measure) -> None:
    text = behind(KEEP, "weights = weights * m").replace(
        "scores.softmax(dim=-1)", "scores.sigmoid()"
    )
    assert masking(measured(text=text, call=MASKED_CALL)).late == ()


def test_a_mask_of_ones_is_judged_as_well(measured: Measure) -> None:
    case = measured(
        text=behind(KEEP, "weights = weights * m"),
        call="torch.randn(2, 5, 24), torch.ones(2, 5).bool()",
    )
    assert len(masking(case).late) == 1


# --- as numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "how", "dtype", "value"),
    [
        ("scores = scores + m", "added", "bool", 1.0),
        ("scores = scores + m.float()", "added", "float32", 1.0),
        ("scores = scores - (~m).long()", "added", "int64", -1.0),
        ("scores = scores * m", "multiplied", "bool", 0.0),
        ("scores = scores * torch.where(m, 1.0, -1e9)", "multiplied", "float32", -1e9),
    ],
)
def test_numbers(line: str, how: str, dtype: str, value: float, measured: Measure) -> None:
    case = measured(text=ahead(KEEP, line), call=MASKED_CALL)
    (number,) = masking(case).numbers
    assert (number.how, number.dtype, number.value) == (how, dtype, value)
    assert number.span is not None and number.span.line == case.line(line)
    assert number.kept >= 0


@pytest.mark.parametrize(
    "line",
    [
        "m = m.masked_fill(~m, -1e15)",
        "m = m.clone(); m[~m] = float('-inf')",
    ],
)
def test_a_bool_tensor_filled_with_a_number(line: str, measured: Measure) -> None:
    case = measured(text=ahead(KEEP, line, "scores = scores + m"), call=MASKED_CALL)
    (number,) = masking(case).numbers
    assert (number.how, number.dtype) == ("collapsed", "bool")
    assert number.span is not None and number.span.line == case.line(line)


def test_a_bool_mask_that_collapsed_ahead_of_the_fused_call(measured: Measure) -> None:
    text = given(fused("attn_mask=m", KEEP, "m = m.masked_fill(~m, float('-inf'))"))
    (number,) = masking(measured(text=text, call=MASKED_CALL)).numbers
    assert (number.how, number.value) == ("collapsed", -INF)


@pytest.mark.parametrize(
    "lines",
    [
        ("scores = (scores * m).masked_fill(~m, -1e9)",),
        ("scores = scores * m - 1e9 * (~m).float()",),
        ("scores = scores * 0.9 ** torch.arange(T)",),
        ("scores = scores + m.float().log()",),
        ("scores = F.relu(scores * m)", "scores = scores.masked_fill(~m, -1e9)"),
    ],
)
def test_numbers_that_are_right(lines: tuple[str, ...], measured: Measure) -> None:
    assert masking(measured(text=ahead(KEEP, *lines), call=MASKED_CALL)).numbers == ()


# --- weak fills ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "how", "fill"),
    [
        ("scores = scores.masked_fill(~m, -1e-9)", "filled", -1e-9),
        ("scores = scores.masked_fill(~m, 0)", "filled", 0.0),
        ("scores = scores.masked_fill(~m, 1e9)", "filled", 1e9),
        ("scores = scores.masked_fill(~m, -3.0)", "filled", -3.0),
        ("scores = scores + (~m) * -1e-7", "added", -1e-7),
        ("scores = scores + (~m) * -10.0", "added", -10.0),
    ],
)
def test_fills_that_leave_weight(line: str, how: str, fill: float, measured: Measure) -> None:
    case = measured(text=ahead(KEEP, line), call=MASKED_CALL)
    (weak,) = masking(case).weak
    assert weak.how == how
    assert weak.fill == pytest.approx(fill)
    assert weak.span is not None and weak.span.line == case.line(line)
    assert weak.kept > 1e-6 and weak.loud == weak.kept


@pytest.mark.parametrize("of", ["0", "zero"])
def test_where_the_fill_is_named(of: str, measured: Measure) -> None:
    line = f"scores = scores.masked_fill(~m.view(S, -1, 1, T), {of})"
    before = "S = x.size(0)\n        zero = 0.0"
    case = measured(text=ahead(KEEP, f"{before}\n        {line}"), call=MASKED_CALL)
    (weak,) = masking(case).weak
    assert weak.span is not None
    assert weak.span.line == case.line(line if of == "0" else "zero = 0.0")


def test_a_fill_that_only_large_inputs_outrun(measured: Measure) -> None:
    text = ahead(KEEP, "scores = scores.masked_fill(~m, -30.0)")
    (weak,) = masking(measured(text=text, call=MASKED_CALL)).weak
    assert weak.kept < 1e-9 and weak.loud > 1e-6


def test_a_fill_that_the_recorded_scores_outrun(measured: Measure) -> None:
    text = ahead(KEEP, "scores = scores.masked_fill(~m, -100.0)")
    (weak,) = masking(measured(text=text, call=MASKED_CALL.replace("24)", "24) * 90", 1))).weak
    assert weak.level == -100 and weak.lowest < -100


@pytest.mark.parametrize(
    "line",
    [
        "scores = scores.masked_fill(~m, -100.0)",
        "scores = scores.masked_fill(~m, -1e4)",
        "scores = scores + (~m) * -1e4",
        "scores = scores.masked_fill(~m, 0).masked_fill(~m, -1e9)",
        "scores = scores.masked_fill(~m.transpose(-2, -1), 0)",
        "scores = scores + m * -1.5",
        "scores = scores - 0.5 * torch.arange(T)",
    ],
)
def test_fills_and_biases_that_are_right(line: str, measured: Measure) -> None:
    assert masking(measured(text=ahead(KEEP, line), call=MASKED_CALL)).weak == ()


def test_the_number_is_told_where_it_is_named(measured: Measure) -> None:
    text = "SMALL = -1e-8\n\n\n" + ahead(KEEP, "scores = scores.masked_fill(~m, SMALL)")
    case = measured(text=text, call=MASKED_CALL)
    (weak,) = masking(case).weak
    assert case.marked(weak.span) == "SMALL = -1e-8"
    assert weak.applied is not None and weak.applied.line == case.line("masked_fill(~m, SMALL)")


# --- squashed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("scores = 30 * torch.tanh(scores / 30)", -30.0),
        ("scores = scores.clamp(-10, 10)", -10.0),
        ("scores = F.relu(scores)", 0.0),
    ],
)
def test_a_bounded_map_behind_the_mask(line: str, level: float, measured: Measure) -> None:
    case = measured(
        text=ahead(KEEP, "scores = scores.masked_fill(~m, -1e9)", line), call=MASKED_CALL
    )
    found = masking(case)
    (squashed,) = found.squashed
    assert squashed.fill == -1e9
    assert squashed.level == pytest.approx(level)
    assert squashed.span is not None and squashed.span.line == case.line(line)
    assert squashed.masked_at is not None
    assert squashed.masked_at.line == case.line("masked_fill(~m, -1e9)")
    assert found.weak == ()


@pytest.mark.parametrize(
    "lines",
    [
        ("scores = 30 * torch.tanh(scores / 30)", "scores = scores.masked_fill(~m, -1e9)"),
        ("scores = scores.masked_fill(~m, -1e9)", "scores = scores / 8"),
        ("scores = scores.masked_fill(~m, -1e9)", "scores = scores.clamp(min=-1e5)"),
        (
            "scores = scores.masked_fill(~m, -1e9)",
            "scores = scores.clamp(-10, 10)",
            "scores = scores.masked_fill(~m, -1e9)",
        ),
    ],
)
def test_maps_that_bring_nothing_back(lines: tuple[str, ...], measured: Measure) -> None:
    assert masking(measured(text=ahead(KEEP, *lines), call=MASKED_CALL)).squashed == ()


# --- overflow --------------------------------------------------------------------------------------

HALF = {
    "build": "MHA(24, 4).half()",
    "call": "torch.randn(2, 5, 24).half(), torch.arange(5)[None] < torch.tensor([[5], [3]])",
}


def test_a_fill_that_half_cannot_hold(measured: Measure) -> None:
    line = "bias = (~m).to(scores.dtype) * -1e9"
    case = measured(text=ahead(KEEP, line, "scores = scores + bias"), name="MHA", **HALF)
    overflow = masking(case).overflow
    assert overflow is not None
    assert (overflow.kind, overflow.value, overflow.becomes, overflow.dtype) == (
        "fill", -1e9, -INF, "float16",
    )  # fmt: skip
    assert (overflow.nan_rows, overflow.rows, overflow.reaches) == (0, 40, False)
    assert overflow.span is not None and overflow.span.line == case.line(line)


def test_nothing_times_infinity(measured: Measure) -> None:
    line = "bias = (~m).float() * float('-inf')"
    case = measured(text=ahead(KEEP, line, "scores = scores + bias"), call=MASKED_CALL)
    overflow = masking(case).overflow
    assert overflow is not None and (overflow.kind, overflow.reaches) == ("nan", True)
    assert overflow.span is not None and overflow.span.line == case.line(line)


def test_two_minima_that_leave_no_key(measured: Measure) -> None:
    lines = (
        "low = torch.finfo(scores.dtype).min",
        "bias = torch.where(m, 0.0, low) + torch.where(m, 0.0, low)",
        "scores = scores + bias",
    )
    case = measured(
        text=ahead(KEEP, *lines),
        call="torch.randn(2, 5, 24), torch.arange(5)[None] < torch.tensor([[5], [0]])",
    )
    found = masking(case)
    assert found.overflow is not None
    assert (found.overflow.kind, found.overflow.nan_rows) == ("sum", 20)
    assert found.overflow.span is not None and found.overflow.span.line == case.line(lines[1])


@pytest.mark.parametrize(
    "lines",
    [
        ("scores = scores.float().masked_fill(~m, -1e9).softmax(-1).to(x.dtype).log()",),
        ("scores = scores + (~m).half() * torch.finfo(scores.dtype).min",),
        ("scores = scores.masked_fill(~m, float('-inf'))",),
    ],
)
def test_numbers_that_half_can_hold(lines: tuple[str, ...], measured: Measure) -> None:
    case = measured(text=ahead(KEEP, *lines), name="MHA", **HALF)
    assert masking(case).overflow is None


# --- empty rows ------------------------------------------------------------------------------------

CROSS = """\
class Cross(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x, memory, there):
        q = self.q(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        k, v = self.kv(memory).unflatten(-1, (2, self.h, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s.masked_fill(~there[:, None, None], FILL)
        w = s.softmax(-1)
        return self.o((w @ v).transpose(1, 2).flatten(2))
"""
EMPTY = {
    "build": "Cross(24, 4)",
    "call": "torch.randn(2, 3, 24), torch.randn(2, 5, 24), torch.tensor([[True] * 5, [False] * 5])",
}


@pytest.mark.parametrize(("fill", "nan"), [("float('-inf')", True), ("-1e9", False)])
def test_a_memory_without_any_key(fill: str, nan: bool, measured: Measure) -> None:
    case = measured(text=CROSS.replace("FILL", fill), **EMPTY)
    empty = masking(case).empty
    assert empty is not None
    assert (empty.rows, empty.of, empty.nan, empty.whole) == (12, 24, nan, True)
    assert empty.example == "query 0 of sample 1"
    assert empty.span is not None and empty.span.line == case.line("s.masked_fill")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w = s.softmax(-1)", "w = s.softmax(-1).masked_fill(~there[:, None, None], 0)"),
        ("w = s.softmax(-1)", "w = s.softmax(-1) * there.any(-1)[:, None, None, None]"),
    ],
)
def test_weights_that_are_set_to_nothing(old: str, new: str, measured: Measure) -> None:
    case = measured(text=CROSS.replace("FILL", "-1e9").replace(old, new), **EMPTY)
    assert masking(case).empty is None


def test_a_softmax_that_gives_nothing_for_nothing(measured: Measure) -> None:
    text = CROSS.replace(
        "        w = s.softmax(-1)\n", ""
    ).replace("        s = s.masked_fill(~there[:, None, None], FILL)\n", "").replace(
        "        s = q @ k.mT / q.shape[-1] ** 0.5\n", ""
    ).replace(
        "(w @ v)", "F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None])"
    )  # fmt: skip
    assert masking(measured(text=text, **EMPTY)).empty is None


def test_padded_queries_harm_nobody(measured: Measure) -> None:
    text = ahead(
        "m = keep[:, None, None] & keep[:, None, :, None]", "scores = scores.masked_fill(~m, -1e9)"
    )
    assert masking(measured(text=text, call=MASKED_CALL)).empty is None


def test_padded_queries_that_are_nan(measured: Measure) -> None:
    text = ahead(
        "m = keep[:, None, None] & keep[:, None, :, None]",
        "scores = scores.masked_fill(~m, float('-inf'))",
    )
    empty = masking(measured(text=text, call=MASKED_CALL)).empty
    assert empty is not None and (empty.nan, empty.rows) == (True, 8)


def test_a_query_that_others_see(measured: Measure) -> None:
    text = masked(
        "group = torch.tensor([0, 0, 1, 1, 1])",
        "scores = scores.masked_fill(group != group[:, None] - 1, -1e9)",
    )
    empty = masking(measured(text=text)).empty
    assert empty is not None
    assert (empty.rows, empty.nan, empty.example) == (16, False, "query 0 of sample 0")


def test_a_triangle_is_judged_elsewhere(measured: Measure) -> None:
    text = masked("scores = scores.masked_fill(torch.ones(T, T).triu().bool(), -1e9)")
    assert masking(measured(text=text)).empty is None


# --- beside a learned bias -------------------------------------------------------------------------

LEARNED = """\
        self.bias = nn.Parameter(torch.randn(4, 5, 5))
        self.out_proj ="""


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("bias = self.bias + m.float()", "numbers"),
        ("bias = self.bias + (~m) * -1e-7", "weak"),
    ],
)
def test_a_mask_added_to_a_learned_bias(line: str, kind: str, measured: Measure) -> None:
    text = ahead(KEEP, line, "scores = scores + bias").replace("        self.out_proj =", LEARNED)
    case = measured(text=text, call=MASKED_CALL)
    (found,) = getattr(masking(case), kind)
    assert found.span.line == case.line(line)


def test_a_right_mask_beside_a_learned_bias(measured: Measure) -> None:
    lines = (KEEP, "bias = self.bias + (~m) * -1e9", "scores = scores + bias")
    text = ahead(*lines).replace("        self.out_proj =", LEARNED)
    case = measured(text=text, call=MASKED_CALL)
    found = masking(case)
    (step,) = found.steps
    assert (step.how, step.inputs) == ("added", ("keep",))
    assert step.fill == pytest.approx(-1e9)
    assert step.applied is not None and step.applied.line == case.line(lines[1])
    assert found == Masking(steps=found.steps)


def test_a_product_spelled_as_einsum(measured: Measure) -> None:
    line = "scores = torch.einsum('bhij,bj->bhij', scores, keep.float())"
    (number,) = masking(measured(text=ahead(line), call=MASKED_CALL)).numbers
    assert (number.how, number.value) == ("multiplied", 0.0)


def test_rows_without_weights_lose_nothing(measured: Measure) -> None:
    emptied = ahead("scores = scores.masked_fill(~keep.any(-1)[:, None, None, None], -math.inf)")
    text = emptied.replace(
        SOFTMAX, SOFTMAX + "        weights = weights.masked_fill(~keep[:, None, None], 0.0)\n"
    )
    (late,) = masking(measured(text=text, call=MASKED_CALL)).late
    assert (late.pairs, late.fill) == (40, 0.0)
    nothing = MASKED_CALL.replace("[3]", "[0]")
    assert masking(measured(text=text, call=nothing)).late == ()


DEALT = """
class Dealt(nn.Module):
    def __init__(self, width, clusters):
        super().__init__()
        self.deal = nn.Linear(width, clusters)

    def forward(self, x, keep):
        keep = keep.unsqueeze(-1).to(x.dtype)
        share = self.deal(x).softmax(AXIS)
        x, share = x * keep, share * keep
        return x.transpose(1, 2) @ share
"""


def test_keys_that_are_dealt_to_clusters_are_struck_out_behind(measured: Measure) -> None:
    keep = "torch.ones(2, 5, dtype=torch.bool)"
    given = {"build": "Dealt(12, 9)", "call": f"torch.randn(2, 5, 12), {keep}"}
    dealt = measured(text=DEALT.replace("AXIS", "2"), **given)
    assert masking(dealt).late == ()
    pooled = measured(text=DEALT.replace("AXIS", "1"), **given)
    (late,) = masking(pooled).late
    assert late.span is not None and late.span.line == pooled.line("share * keep")
