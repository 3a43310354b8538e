"""Windows that hold fewer or more positions than they say."""

from __future__ import annotations

import pytest

from mha_lint.facts.masks.fit import measure_mask_fit
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Known
from mha_lint.model.mask_fit_facts import Misplaced
from tests.facts.conftest import Case, Measure

LOCAL = """\
class Local(nn.Module):
    def __init__(self, d_model, num_heads, window):
        super().__init__()
        self.h, self.window = num_heads, window
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        behind = torch.arange(T)[:, None] - torch.arange(T)
        seen = (behind >= 0) & (behind < self.window)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(B, T, C))
"""


def misplaced(case: Case) -> tuple[Misplaced, ...]:
    found = measure_mask_fit(case.subject, case.bench, case.bench.sites[0], Contract())
    assert isinstance(found, Known), found
    return found.value.misplaced


def local(measured: Measure, *edits: tuple[str, str]) -> Case:
    return measured(
        *edits, text=LOCAL, build="Local(24, 4, window=3)", call="torch.randn(2, 7, 24)"
    )


def test_as_many_keys_as_the_window_says(measured: Measure) -> None:
    assert misplaced(local(measured)) == ()


def test_one_key_more_is_a_custom_too(measured: Measure) -> None:
    assert misplaced(local(measured, ("< self.window", "<= self.window"))) == ()


def test_one_key_more_where_the_text_counts_the_query_itself(measured: Measure) -> None:
    text = (
        "        behind =",
        "        # the last `window` positions, itself included\n        behind =",
    )
    (one,) = misplaced(local(measured, ("< self.window", "<= self.window"), text))
    assert (one.kind, one.says) == (
        "short", "a query sees 4 keys, itself among them, and window is 3",
    )  # fmt: skip


def test_one_key_less(measured: Measure) -> None:
    (one,) = misplaced(local(measured, ("< self.window", "< self.window - 1")))
    assert (one.kind, one.certain) == ("short", False)
    assert one.says == "a query sees 2 keys, itself among them, and window is 3"


def test_ahead_and_not_behind(measured: Measure) -> None:
    case = local(measured, ("(behind >= 0) & (behind < self.window)",
                            "(behind <= 0) & (behind > -self.window)"))  # fmt: skip
    (one,) = misplaced(case)
    assert (one.kind, one.certain) == ("window", True)


def test_a_window_on_both_sides(measured: Measure) -> None:
    both = ("(behind >= 0) & (behind < self.window)", "behind.abs() < self.window")
    assert misplaced(local(measured, both)) == ()


AROUND = (
    "(behind >= 0) & (behind < self.window)",
    "(behind <= self.window) & (behind > -self.window)",
)
SAID = ("        behind =", "        # both sides alike\n        behind =")


def test_a_window_that_is_shorter_ahead(measured: Measure) -> None:
    case = local(measured, AROUND, SAID)
    (one,) = misplaced(case)
    assert (one.kind, one.certain) == ("lopsided", False)
    assert one.says == "a query sees 3 positions before it and 2 behind it, and window is 3"
    assert case.marked(one.span) == "(behind <= self.window) & (behind > -self.window)"


@pytest.mark.parametrize(
    "edits",
    [
        (AROUND,),  # nothing is said of both sides
        (SAID, ("(behind >= 0) & (behind < self.window)", "(behind < 2) & (behind > -2)")),
        # An even window has one position more before than behind.
        (SAID, ("(behind >= 0) & (behind < self.window)", "(behind <= 1) & (behind >= -1)")),
        (SAID, ("(behind >= 0) & (behind < self.window)", "(behind <= 5) & (behind >= -4)")),
    ],
)
def test_windows_around(edits: tuple[tuple[str, str], ...], measured: Measure) -> None:
    assert misplaced(local(measured, *edits)) == ()
