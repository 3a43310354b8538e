"""What a module loses in half precision: rounding is no deviation, and more than rounding is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.report import CrossCheck
from tests.engine.conftest import line_of
from tests.facts.conftest import PLAIN, edited
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.engine.conftest import Check

HALVES = ["float16", "bfloat16"]
LOGITS = "scores = scores / math.sqrt(self.d_k)"
WEIGHTS = "weights = scores.softmax(dim=-1)"
LOSSY = {
    "a shift of the scores that eats their digits": (LOGITS, f"{LOGITS} + 1000.0 - 1000.0"),
    "a shift of the weights": (WEIGHTS, f"{WEIGHTS} + 64.0 - 64.0"),
}
"""Right in exact arithmetic, and so in float64."""
BUFFER = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.register_buffer("scale", torch.tensor(FACTOR * self.d_k**-0.5))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * self.scale).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C))
"""


def only(checked: Check, text: str, native: str, **settings: Any) -> CrossCheck:
    """Check MHA cast to `native` and return the row of its one site."""
    report = checked(
        "a.py::MHA",
        files={"a.py": text},
        build=f"MHA(24, 4).to(torch.{native})",
        call=f"torch.randn(2, 5, 24, dtype=torch.{native})",
        **settings,
    )
    assert report.crashes == ()
    (target,) = report.targets
    assert target.reason is None
    (row,) = target.crosscheck
    return row


@pytest.mark.parametrize("dtype", HALVES)
def test_a_right_module_stays_within_the_bound(dtype: str, checked: Check) -> None:
    row = only(checked, PLAIN, dtype)
    assert (row.verdict, row.departs_at, row.explanation) == ("match", None, None)
    assert (row.device, row.dtype) == ("cpu", dtype)
    assert row.max_abs_error is not None and row.tolerance is not None
    assert 1e-5 < row.max_abs_error <= row.tolerance < 1e-2


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", LOSSY)
def test_what_float64_cannot_see_is_told(name: str, dtype: str, checked: Check) -> None:
    text = edited(PLAIN, LOSSY[name])
    row = only(checked, text, dtype)
    assert (row.verdict, row.departs_at, row.dtype) == ("mismatch", "context", dtype)
    assert row.explanation is not None and row.explanation.startswith(f"in {dtype} it ")
    if row.max_abs_error is not None and row.tolerance is not None:
        assert row.max_abs_error > row.tolerance
    exact = only(checked, text, dtype, dtype="float64")
    assert (exact.verdict, exact.dtype) == ("match", "float64")


def test_exponentials_that_overflow(checked: Check) -> None:
    powers = "powers = (scores + 11).exp()\n        weights = powers / powers.sum(-1, keepdim=True)"
    text = edited(PLAIN, (WEIGHTS, powers))
    row = only(checked, text, "float16")
    assert row.verdict == "mismatch"
    assert row.explanation == (
        "in float16 it overflows where a straightforward implementation does not"
    )


def test_a_number_added_to_all_scores_costs_their_digits(checked: Check) -> None:
    """A softmax does not change by it, and a straightforward implementation does without it."""
    text = edited(PLAIN, (LOGITS, f"{LOGITS} + 100.0"))
    for dtype in HALVES:
        row = only(checked, text, dtype)
        assert (row.verdict, row.dtype) == ("mismatch", dtype)
    bias = "torch.arange(T).sub(T - 1).to(x.dtype)"
    text = edited(PLAIN, (LOGITS, f"{LOGITS} + {bias}"))
    assert [only(checked, text, dtype).verdict for dtype in HALVES] == ["match", "match"]


def test_a_finite_fill_takes_the_place_of_the_score(checked: Check) -> None:
    fill = "scores.masked_fill(torch.ones(T, T).triu(1).bool(), -1e4).softmax(-1)"
    text = edited(PLAIN, (WEIGHTS, f"weights = {fill}"))
    for dtype in HALVES:
        row = only(checked, text, dtype)
        assert (row.verdict, row.dtype, row.explanation) == ("match", dtype, None)


def test_large_products_that_are_scaled_afterwards_overflow(checked: Check) -> None:
    text = edited(
        PLAIN,
        ("scores = q @ k", "scores = (q * 256) @ (k * 256)"),
        (LOGITS, "scores = scores / (65536 * math.sqrt(self.d_k))"),
    )
    row = only(checked, text, "float16")
    assert (row.verdict, row.departs_at) == ("mismatch", "context")
    assert row.explanation == (
        "in float16 it overflows where a straightforward implementation does not"
    )
    assert only(checked, text, "bfloat16").verdict == "match"


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "edit",
    [
        ("scores.softmax(dim=-1)", "scores.float().softmax(dim=-1).to(x.dtype)"),
        ("scores.softmax(dim=-1)", "(scores - scores.amax(-1, keepdim=True)).softmax(dim=-1)"),
        (
            WEIGHTS,
            "weights = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)",
        ),
        (LOGITS, f"{LOGITS} + torch.full((T, T), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)"),
        ("scores = q @ k.transpose(-2, -1)", "scores = (q / 2) @ (k.transpose(-2, -1) * 2)"),
        ("scores = q @ k.transpose(-2, -1)", "scores = torch.einsum('bhqd,bhkd->bhqk', q, k)"),
    ],
)
def test_legitimate_code_stays_within_the_bound(
    edit: tuple[str, str], dtype: str, checked: Check
) -> None:
    row = only(checked, edited(PLAIN, edit), dtype)
    assert (row.verdict, row.dtype) == ("match", dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_fault_of_meaning_is_still_judged_in_float64(dtype: str, checked: Check) -> None:
    row = only(checked, edited(PLAIN, ("softmax(dim=-1)", "softmax(dim=-2)")), dtype)
    assert (row.verdict, row.departs_at, row.dtype) == ("mismatch", "weights", "float64")
    assert row.explanation is not None and "softmax over the query axis" in row.explanation


@pytest.mark.parametrize("dtype", HALVES)
def test_a_constant_rounded_to_the_type_is_no_deviation(dtype: str, checked: Check) -> None:
    row = only(checked, BUFFER.replace("FACTOR * ", ""), dtype)
    assert (row.verdict, row.departs_at, row.dtype) == ("match", None, dtype)
    assert row.explanation is not None
    assert row.explanation.startswith(f"{dtype} cannot tell it from the reference; in float64, ")
    row = only(checked, BUFFER.replace("FACTOR", "1.1"), dtype)
    assert (row.verdict, row.departs_at, row.dtype) == ("mismatch", "scores", "float64")


@pytest.mark.parametrize("name", ["nn.MultiheadAttention", *SPELLINGS])
def test_another_type_can_be_asked_for(name: str, checked: Check) -> None:
    if name in SPELLINGS:
        spelling = SPELLINGS[name]
        text, build, call = spelling.text, spelling.build, spelling.call
    else:
        text = "class MHA(nn.MultiheadAttention): ...\n"
        build, call = "MHA(24, 4, batch_first=True)", ", ".join(["torch.randn(2, 5, 24)"] * 3)
    cls = build.partition("(")[0]
    report = checked(f"a.py::{cls}", files={"a.py": text}, build=build, call=call, dtype="bfloat16")
    (row,) = report.targets[0].crosscheck
    assert (row.verdict, row.dtype, row.explanation) == ("match", "bfloat16", None)
    assert row.max_abs_error is not None and row.max_abs_error > 1e-4


def test_float32_is_held_to_its_own_rounding(checked: Check) -> None:
    row = only(checked, PLAIN, "float32", dtype="float32")
    assert (row.verdict, row.dtype) == ("match", "float32")
    assert row.tolerance is not None and row.tolerance < 1e-6
    lossy = edited(PLAIN, (LOGITS, f"{LOGITS} + 1000.0 - 1000.0"))
    assert only(checked, lossy, "float32", dtype="float32").verdict == "mismatch"


def test_a_module_in_full_precision_is_not_asked(checked: Check) -> None:
    assert only(checked, PLAIN, "float32").dtype == "float64"
    assert only(checked, PLAIN, "bfloat16", dtype="float64").dtype == "float64"


def test_a_module_that_does_not_run_in_the_type(checked: Check) -> None:
    text = edited(PLAIN, ("B, T, C = x.shape", "B, T, C = x.shape\n        x = x.float()"))
    row = only(checked, text, "float32", dtype="bfloat16")
    assert (row.verdict, row.dtype) == ("match", "float64")
    assert row.explanation is not None
    assert row.explanation.startswith(
        "what is lost in bfloat16 was not measured: the module does not run in it: "
    )


def test_a_design_without_a_plain_implementation_is_not_measured(checked: Check) -> None:
    text = edited(PLAIN, (LOGITS, f"{LOGITS}\n        scores = 20 * torch.tanh(scores / 20)"))
    row = only(checked, text, "bfloat16")
    assert (row.verdict, row.dtype) == ("match", "float64")
    assert row.explanation == (
        "scores are capped at 20; what is lost in bfloat16 was not measured: no straightforward"
        " implementation of its design is known"
    )


def test_heads_in_a_loop_are_measured_together(checked: Check) -> None:
    text = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        d = d_model // num_heads
        self.q = nn.ModuleList(nn.Linear(d_model, d) for _ in range(num_heads))
        self.k = nn.ModuleList(nn.Linear(d_model, d) for _ in range(num_heads))
        self.v = nn.ModuleList(nn.Linear(d_model, d) for _ in range(num_heads))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        found = []
        for q, k, v in zip(self.q, self.k, self.v):
            weights = (q(x) @ k(x).mT / q.out_features**0.5).softmax(-1)
            found.append(weights @ v(x))
        return self.out(torch.cat(found, -1))
"""
    row = only(checked, text, "bfloat16")
    assert (row.verdict, row.dtype, row.explanation) == ("match", "bfloat16", None)


def test_the_same_numbers_every_time(checked: Check) -> None:
    assert only(checked, PLAIN, "bfloat16") == only(checked, PLAIN, "bfloat16")


# --- the rule --------------------------------------------------------------------------------------


def verdict(checked: Check, text: str, native: str, **settings: Any) -> tuple[list[Any], list[str]]:
    """Return the findings, as code and line, and the codes of what is undecided."""
    report = checked(
        "a.py::MHA",
        files={"a.py": text},
        build=f"MHA(24, 4).to(torch.{native})",
        call=f"torch.randn(2, 5, 24, dtype=torch.{native})",
        **settings,
    )
    assert report.crashes == ()
    (target,) = report.targets
    found = [(f.code, f.span.line) for f in target.findings]
    return found, [u.code for u in target.undecided]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", LOSSY)
def test_a_loss_is_found_where_it_arises(name: str, dtype: str, checked: Check) -> None:
    text = edited(PLAIN, LOSSY[name])
    line = line_of(text, LOSSY[name][1])
    assert verdict(checked, text, dtype) == ([("MHA902", line)], [])
    assert verdict(checked, text, dtype, dtype="float64") == ([], [])
    assert verdict(checked, text, dtype, crosscheck=False) == ([], [])


def test_a_cast_within_full_precision(checked: Check) -> None:
    text = edited(PLAIN, (WEIGHTS, "weights = scores.bfloat16().softmax(dim=-1).to(v.dtype)"))
    assert verdict(checked, text, "float32") == ([("MHA902", line_of(text, "bfloat16()"))], [])
    assert verdict(checked, text, "bfloat16") == ([], [])


def test_right_code_in_a_half_type(checked: Check) -> None:
    for dtype in HALVES:
        assert verdict(checked, PLAIN, dtype) == ([], [])


def test_a_wrong_scale_is_told_once(checked: Check) -> None:
    text = edited(PLAIN, (LOGITS, LOGITS.replace("self.d_k", "C")))
    assert verdict(checked, text, "bfloat16") == ([("MHA202", line_of(text, "math.sqrt(C)"))], [])


def test_a_design_without_a_plain_implementation_is_undecided(checked: Check) -> None:
    text = edited(PLAIN, (LOGITS, f"{LOGITS}\n        scores = 20 * torch.tanh(scores / 20)"))
    assert verdict(checked, text, "bfloat16") == ([], ["MHA902"])
