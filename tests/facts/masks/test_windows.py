"""Masks of windows that meet the windows of another sample."""

from __future__ import annotations

from mha_lint.facts.masks.fit import measure_mask_fit
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Known, NotApplicable
from mha_lint.model.mask_fit_facts import Misplaced
from tests.facts.conftest import Case, Measure

WINDOWS = """\
class Windows(nn.Module):
    def __init__(self, d_model, num_heads, window):
        super().__init__()
        self.h, self.w = num_heads, window
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        n = T // self.w
        x = x.reshape(B * n, self.w, C)
        q, k, v = self.qkv(x).view(B * n, self.w, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.h)
        hidden = torch.zeros(n, 1, 1, self.w, dtype=torch.bool)
        hidden[-1, :, :, -1] = True
        scores = scores.masked_fill(hidden.repeat(B, 1, 1, 1), -1e9)
        context = scores.softmax(dim=-1) @ v
        return self.out(context.transpose(1, 2).reshape(B, T, C))
"""
"""The last key of the last window of each sample is hidden."""


def misplaced(case: Case) -> tuple[Misplaced, ...]:
    found = measure_mask_fit(case.subject, case.bench, case.bench.sites[0], Contract())
    assert isinstance(found, Known), found
    return found.value.misplaced


def test_one_mask_for_the_same_window_of_each_sample(measured: Measure) -> None:
    case = measured(text=WINDOWS, build="Windows(24, 4, 3)", call="torch.randn(2, 9, 24)")
    assert misplaced(case) == ()


def test_windows_and_samples_in_another_order(measured: Measure) -> None:
    case = measured(
        ("hidden.repeat(B, 1, 1, 1)", "hidden.repeat_interleave(B, 0)"),
        text=WINDOWS,
        build="Windows(24, 4, 3)",
        call="torch.randn(2, 9, 24)",
    )
    (one,) = misplaced(case)
    assert (one.kind, one.mask) == ("samples", "the mask of the windows")
    assert one.says.startswith("window 1 hides other keys in sample 0 than in sample 1")


def test_lengths_that_were_baked_in_differ_rightly(measured: Measure) -> None:
    case = measured(
        ("hidden.repeat(B, 1, 1, 1)", "torch.cat([hidden, hidden.flip(0)])"),
        text=WINDOWS,
        build="Windows(24, 4, 9)",
        call="torch.randn(2, 9, 24)",
    )
    assert misplaced(case) == ()


SOFT = (
    ("torch.zeros(n, 1, 1, self.w, dtype=torch.bool)", "scores.new_zeros(n, 1, 1, self.w)"),
    ("hidden[-1, :, :, -1] = True", "hidden[-1, :, :, -1] = -100.0"),
)
FILL = "scores = scores.masked_fill(hidden.repeat(B, 1, 1, 1), -1e9)"


def test_a_soft_mask_of_the_same_window_of_each_sample(measured: Measure) -> None:
    edits = (
        *SOFT,
        (FILL, "scores = (scores.view(B, n, self.h, self.w, self.w) + hidden).view_as(scores)"),
    )
    case = measured(*edits, text=WINDOWS, build="Windows(24, 4, 3)", call="torch.randn(2, 9, 24)")
    found = measure_mask_fit(case.subject, case.bench, case.bench.sites[0], Contract())
    assert found == NotApplicable("nothing is hidden")


def test_a_soft_mask_of_windows_in_another_order(measured: Measure) -> None:
    edits = (
        *SOFT,
        (
            FILL,
            "scores = (scores.view(n, B, self.h, self.w, self.w) + hidden[:, None]).view_as(scores)",
        ),
    )
    case = measured(*edits, text=WINDOWS, build="Windows(24, 4, 3)", call="torch.randn(2, 9, 24)")
    (one,) = misplaced(case)
    assert one.kind == "samples"
    assert one.says.startswith("window 1 hides other keys in sample 0 than in sample 1")
