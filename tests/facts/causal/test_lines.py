"""The line that draws a mask, however it gets to the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.lines import (
    cut_line,
    has_idle_mask,
    is_given,
    mask_nodes,
    says_is_causal,
    step_line,
    triangle_line,
)
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

SOFTMAX = "        weights = scores.softmax(dim=-1)\n"
HEADS = "        self.h = num_heads\n"


def masked(measured: Measure, *lines: str, setup: str = "") -> Case:
    body = "".join(f"        {line}\n" for line in lines)
    edits = [(SOFTMAX, body + SOFTMAX)]
    if setup:
        edits.append((HEADS, f"{HEADS}        {setup}\n"))
    return measured(*edits)


@pytest.mark.parametrize(
    "lines",
    [
        ("hide = torch.ones(T, T).triu(1)", "scores = scores.masked_fill(hide.bool(), -1e9)"),
        ("hide = torch.arange(T) > torch.arange(T)[:, None]", "scores = scores.where(~hide, -1e9)"),
        ("hide = torch.full((T, T), -1e9).triu(1)", "scores = scores + hide"),
        ("i, j = torch.triu_indices(T, T, 1)", "scores[..., i, j] = -1e9"),
    ],
)
def test_the_triangle_and_the_step(measured: Measure, lines: tuple[str, str]) -> None:
    case = masked(measured, *lines)
    (site,) = case.bench.sites
    first, second = (case.line(line) for line in lines)
    assert (triangle := triangle_line(case.bench, site)) is not None
    assert (step := step_line(case.bench, site)) is not None
    assert (triangle.line, step.line) == (first, second)


@pytest.mark.parametrize(
    "setup",
    [
        'self.register_buffer("tri", torch.ones(9, 9).triu(1).bool())',
        "self.tri = torch.ones(9, 9).triu(1).bool()",
    ],
)
def test_a_buffer_is_drawn_where_it_is_made_and_cut_where_it_is_used(
    measured: Measure, setup: str
) -> None:
    lines = ("hide = self.tri[:T, :T]", "scores = scores.masked_fill(hide, -1e9)")
    case = masked(measured, *lines, setup=setup)
    (site,) = case.bench.sites
    assert (triangle := triangle_line(case.bench, site)) is not None
    assert (cut := cut_line(case.bench, site)) is not None
    assert (triangle.line, cut.line) == (
        case.line("self.tri = " if "self.tri =" in setup else "register_buffer"),
        case.line("hide = "),
    )


def test_a_buffer_that_is_drawn_on_a_line_before(measured: Measure) -> None:
    setup = (
        "bias = torch.ones(9, 9).triu(1).bool()\n"
        '        self.register_buffer("tri", bias.view(9, 9))'
    )
    case = masked(measured, "scores = scores.masked_fill(self.tri[:T, :T], -1e9)", setup=setup)
    (site,) = case.bench.sites
    assert (triangle := triangle_line(case.bench, site)) is not None
    assert triangle.line == case.line("bias = torch.ones")


def test_no_mask(measured: Measure) -> None:
    case = measured()
    (site,) = case.bench.sites
    assert mask_nodes(case.bench, site) == []
    assert (triangle_line(case.bench, site), step_line(case.bench, site)) == (None, None)
    assert not has_idle_mask(case.bench, site)


def test_a_mask_that_does_nothing(measured: Measure) -> None:
    case = masked(measured, "scores = scores.masked_fill(torch.zeros(T, T).bool(), -1e9)")
    (site,) = case.bench.sites
    assert has_idle_mask(case.bench, site)


def test_a_mask_from_the_caller(measured: Measure) -> None:
    edit = (SOFTMAX, f"        scores = scores.masked_fill(hide, -1e9)\n{SOFTMAX}")
    text = PLAIN.replace("forward(self, x)", "forward(self, x, hide)")
    call = "torch.randn(2, 5, 24), torch.ones(5, 5).triu(1).bool()"
    case = measured(edit, text=text, call=call)
    assert is_given(case.bench, case.bench.sites[0])
    own = masked(measured, "scores = scores.masked_fill((x.sum(-1) > 9)[:, None, None], -1e9)")
    assert not is_given(own.bench, own.bench.sites[0])


def test_the_flag_of_a_fused_call(measured: Measure) -> None:
    fused = "        context = F.scaled_dot_product_attention(\n            q, k, v, is_causal=True\n        )\n"
    case = measured(("        context = weights @ v\n", fused))
    (site,) = case.bench.sites
    assert says_is_causal(triangle_line(case.bench, site))
    assert not says_is_causal(None)
