"""The same subject with its flags flipped: scales and masks on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

FLAG = (
    ("self.h = num_heads", "self.h = num_heads\n        self.fused = False"),
    (
        "        scores = scores / math.sqrt(self.d_k)\n",
        "        if self.fused:\n"
        "            scores = scores / math.sqrt({other})\n"
        "        else:\n"
        "            scores = scores / math.sqrt(self.d_k)\n",
    ),
)


def flagged(other: str) -> tuple[tuple[str, str], ...]:
    (one, (old, new)) = FLAG
    return one, (old, new.format(other=other))


def test_a_flag_that_changes_the_scale(measured: Measure, known: Known) -> None:
    case = measured(*flagged("C"))
    (found,) = known(case.site.branch_scales)
    assert found.flag == "fused=False"
    assert found.here == pytest.approx(6**-0.5, rel=1e-7)
    assert found.other == pytest.approx(24**-0.5, rel=1e-7)
    assert case.marked(found.span) == "scores / math.sqrt(self.d_k)"
    assert case.marked(found.other_span) == "scores / math.sqrt(C)"


def test_a_flag_that_changes_nothing_measured(measured: Measure, known: Known) -> None:
    assert known(measured(*flagged("self.d_k * 1.0")).site.branch_scales) == ()
    assert known(measured().site.branch_scales) == ()


def test_a_flag_that_forward_never_tests_is_not_flipped(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = num_heads\n        self.fused = False"),
        (
            "math.sqrt(self.d_k)",
            "(math.sqrt(C) * self.fused + math.sqrt(self.d_k) * (not self.fused))",
        ),
    )
    assert known(case.site.branch_scales) == ()


def test_an_option_that_only_turns_the_scale_off(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = num_heads\n        self.scaling = True"),
        (
            "        scores = scores / math.sqrt(self.d_k)\n",
            "        if self.scaling:\n            scores = scores / math.sqrt(self.d_k)\n",
        ),
    )
    assert known(case.site.branch_scales) == ()


FUSED = """\
class MHA(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.fast = heads, True
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, hide=None, give_weights=False):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fast and not give_weights:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).flatten(2))
        scores = q @ k.mT / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -1e9)
        weights = scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
"""


def test_an_attribute_and_an_argument_are_flipped(measured: Measure) -> None:
    case = measured(text=FUSED)
    found = [(b.flag, b.value, b.label) for b in case.measured.branches]
    assert found == [("fast", True, "fast=False"), ("give_weights", False, "give_weights=True")]


def test_masks_that_agree(measured: Measure, known: Known) -> None:
    assert known(measured(text=FUSED).site.branch_masks) == ()


def test_a_causal_mask_that_one_branch_forgets(measured: Measure, known: Known) -> None:
    case = measured((", is_causal=True", ""), text=FUSED)
    fast, given = known(case.site.branch_masks)
    assert (fast.flag, fast.future, fast.pairs) == ("fast=True", True, 10)
    assert (given.flag, given.future, given.pairs) == ("give_weights=False", True, 10)
    assert case.marked(fast.span).startswith("F.scaled_dot_product_attention(q, k, v)")
    assert case.marked(fast.other_span).startswith("scores.masked_fill")
    other = measured(
        ("        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -1e9)\n", ""),
        text=FUSED,
    )
    found = known(other.site.branch_masks)
    assert [f.flag for f in found] == ["fast=False", "give_weights=True"]
    assert other.marked(found[0].span) == "weights @ v"


def test_padding_that_one_branch_forgets(measured: Measure, known: Known) -> None:
    case = measured(
        ("is_causal=True", "attn_mask=None if hide is None else ~hide[:, None, None]"),
        ("torch.ones(t, t).triu(1).bool()", "torch.zeros(t, t).bool()"),
        text=FUSED,
        call="torch.randn(2, 5, 24), torch.arange(5)[None] >= torch.tensor([[5], [3]])",
    )
    found = known(case.site.branch_masks)
    assert [(f.flag, f.future, f.pairs) for f in found] == [
        ("fast=False", False, 10),
        ("give_weights=True", False, 10),
    ]


def test_a_flag_about_masks_is_an_option(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.heads, self.fast", "self.heads, self.causal"),
        ("self.fast and not give_weights", "self.causal and not give_weights"),
        ("torch.ones(t, t).triu(1).bool()", "torch.zeros(t, t).bool()"),
        text=FUSED,
    )
    found = known(case.site.branch_masks)
    assert [f.flag for f in found] == ["give_weights=True"]


GIVEN = (
    FUSED.replace("give_weights=False", "pad=None")
    .replace(
        "        if self.fast and not give_weights:\n"
        "            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
        "            return self.out(y.transpose(1, 2).flatten(2))\n",
        "        hidden = torch.zeros(t, t).bool()\n"
        "        hidden = torch.ones(t, t).triu(1).bool() if pad is None else pad[:, None, None, :]\n",
    )
    .replace("torch.ones(t, t).triu(1).bool(), -1e9", "hidden, -1e9")
)
PAD = "torch.randn(2, 5, 24), pad=torch.arange(5)[None] >= torch.tensor([[5], [3]])"


def test_a_triangle_that_padding_replaces(measured: Measure, known: Known) -> None:
    case = measured(text=GIVEN, call=PAD)
    (branch,) = [b for b in case.measured.branches if b.value is None]
    assert (branch.label, branch.here) == ("pad=None", "pad given")
    (found,) = known(case.site.branch_masks)
    assert (found.flag, found.future, found.apart) == ("pad given", True, False)
    assert case.marked(found.span) == "weights @ v"


def test_padding_that_joins_the_triangle(measured: Measure, known: Known) -> None:
    edit = (
        "torch.ones(t, t).triu(1).bool() if pad is None else pad[:, None, None, :]",
        "torch.ones(t, t).triu(1).bool() | (hidden if pad is None else pad[:, None, None, :])",
    )
    assert known(measured(edit, text=GIVEN, call=PAD).site.branch_masks) == ()


def test_a_prefix_that_may_be_given_is_no_padding(measured: Measure, known: Known) -> None:
    edit = (
        "pad[:, None, None, :]",
        "torch.ones(t, t).triu(1).bool() & ~pad[:, None, None, :]",
    )
    assert known(measured(edit, text=GIVEN, call=PAD).site.branch_masks) == ()


def test_one_call_of_torch_beside_a_spelled_one(measured: Measure, known: Known) -> None:
    case = measured((", is_causal=True", ""), text=FUSED)
    assert [b.apart for b in known(case.site.branch_masks)] == [True, True]


WAYS = (
    ("self.h = num_heads", "self.h = num_heads\n        self.fused = False"),
    (
        "        context = weights @ v\n",
        "        context = weights @ v\n"
        "        if self.fused:\n"
        "            context = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)\n",
    ),
)


def test_a_dropout_that_stays_on_hides_nothing(measured: Measure, known: Known) -> None:
    assert known(measured(*WAYS).site.branch_masks) == ()
