"""Where a triangle over more keys than queries begins, against the key that each query owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.offset import Offset, misalignments, wrong_offset
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

CACHED = (
    PLAIN.replace("forward(self, x)", "forward(self, x, past)")
    .replace(
        "        scores = q @",
        "        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)\n"
        "        N = k.size(2)\n        scores = q @",
    )
    .replace(
        "        weights = scores.softmax(dim=-1)\n",
        "        hide = {hide}\n"
        '        scores = scores.masked_fill(hide, float("-inf"))\n'
        "        weights = scores.softmax(dim=-1)\n",
    )
)
PAST = "torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 6)"


def case_of(measured: Measure, hide: str, new: int = 1) -> Case:
    call = f"torch.randn(2, {new}, 24), ({PAST})"
    return measured(text=CACHED.format(hide=hide), call=call)


def offset(case: Case) -> Offset | None:
    (site,) = case.bench.sites
    return wrong_offset(case.bench, site)


@pytest.mark.parametrize("new", [1, 3])
def test_a_triangle_from_the_first_key(measured: Measure, new: int) -> None:
    case = case_of(measured, "torch.ones(T, N).triu(1).bool()", new)
    assert offset(case) == Offset(new, 5 + new, last=0, own=5, hidden=True)
    (found,) = misalignments(case.bench)
    assert found.span is not None
    assert (found.site, found.is_causal, found.made) == (0, False, "")
    assert found.span.line == case.line("hide = ")


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize(
    "hide",
    [
        "torch.ones(T, N).triu(N - T + 1).bool()",
        "torch.arange(N) > torch.arange(N - T, N)[:, None]",
        "torch.zeros(T, N).bool()",
        "(torch.arange(N) > torch.arange(N - T, N)[:, None])"
        " | (torch.arange(N) < torch.arange(N - T, N)[:, None] - 2)",
        "torch.ones(T, N).triu(N - T).bool()",  # no query sees itself: another fault, if one
    ],
)
def test_a_triangle_to_the_last_key(measured: Measure, hide: str, new: int) -> None:
    assert offset(case_of(measured, hide, new)) is None


def test_one_key_too_many_in_a_chunk(measured: Measure) -> None:
    case = case_of(measured, "torch.ones(T, N).triu(N - T + 2).bool()", 3)
    assert offset(case) == Offset(3, 8, last=6, own=5, hidden=False)


def test_a_mask_of_the_caller_is_his_own(measured: Measure) -> None:
    text = CACHED.format(hide="later").replace("x, past)", "x, past, later)")
    call = f"torch.randn(2, 1, 24), ({PAST}), torch.ones(1, 6).triu(1).bool()"
    case = measured(text=text, call=call)
    assert offset(case) is not None
    assert misalignments(case.bench) == []


def test_the_flag_of_the_fused_call_is_named(measured: Measure) -> None:
    fused = "        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
    text = CACHED.format(hide="torch.zeros(T, N).bool()")
    text = text.replace("        context = weights @ v\n", fused)
    case = measured(text=text, call=f"torch.randn(2, 1, 24), ({PAST})")
    (found,) = misalignments(case.bench, made="a step")
    assert (found.is_causal, found.made, case.marked(found.span)[:2]) == (True, "a step", "F.")


def test_cross_attention_owns_no_key(measured: Measure) -> None:
    text = PLAIN.replace("forward(self, x)", "forward(self, x, memory)")
    text = text.replace("self.k_proj(x)", "self.k_proj(memory)").replace(
        "view(B, T,", "view(B, -1,"
    )
    text = text.replace("self.v_proj(x)", "self.v_proj(memory)").replace(
        "        weights = ",
        '        scores = scores + torch.full((T, 7), float("-inf")).triu(1)\n        weights = ',
    )
    case = measured(text=text, call="torch.randn(2, 5, 24), torch.randn(2, 7, 24)")
    assert offset(case) is None
