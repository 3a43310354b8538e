"""Lines of a step: where a cache's own method joins, and which call serves keys alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_lint.facts.caching.stages import Recorded, _kept_elsewhere, _of_keys_alone
from mha_lint.facts.places import span_of
from mha_lint.sites.dependence import op
from tests.facts.caching.conftest import CACHED

if TYPE_CHECKING:
    from torch.fx import Node

    from mha_lint.model.source import Span
    from tests.facts.conftest import Case, Measure

STEP = "torch.randn(2, 1, 24), (torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 6))"
JOIN = "k = torch.cat([past[0], k], dim=2)"
METHOD = """
    def grown(self, old, new):
        return torch.cat([old, new], dim=2)

    def forward"""
SPLIT = (
    "q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))\n"
)
TURN = """
    def turned(self, z, start):
        return z * torch.arange(start + 1, start + 1 + z.size(2))[:, None].cos()

    def forward"""
TURNED = f"{SPLIT}        q = self.turned(q, 0)\n        k = self.turned(k, 0)\n"


def keys_of(case: Case) -> Node:
    (site,) = case.bench.sites
    assert site.k is not None
    return site.k.node


def line_of(span: Span | None) -> int | None:
    return span.line if span is not None else None


def test_past_and_present_are_joined_by_a_method(measured: Measure) -> None:
    case = measured(
        (JOIN, "k = self.grown(past[0], k)"), ("\n    def forward", METHOD), text=CACHED, call=STEP
    )
    kept = _kept_elsewhere(case.bench, keys_of(case))
    assert line_of(kept) == case.line("torch.cat([old, new]")


def test_past_and_present_are_joined_in_forward(measured: Measure) -> None:
    case = measured(text=CACHED, call=STEP)
    assert _kept_elsewhere(case.bench, keys_of(case)) is None


def test_nothing_is_joined(measured: Measure) -> None:
    case = measured()
    assert _kept_elsewhere(case.bench, keys_of(case)) is None


def counting(case: Case) -> list[Span | None]:
    return [span_of(n) for n in case.bench.recording.graph.nodes if op(n) == "cos"]


def test_the_call_for_keys_alone(measured: Measure) -> None:
    """A line that serves queries and keys alike is to blame only as far as the call for keys is."""
    case = measured((SPLIT, TURNED), ("\n    def forward", TURN), text=CACHED, call=STEP)
    shared, other = counting(case)
    assert shared == other
    found = _of_keys_alone(Recorded(case.bench), keys_of(case), shared)
    assert line_of(found) == case.line("k = self.turned(k, 0)")


def test_a_line_for_keys_alone_stays(measured: Measure) -> None:
    alone = TURNED.replace("        q = self.turned(q, 0)\n", "")
    case = measured((SPLIT, alone), ("\n    def forward", TURN), text=CACHED, call=STEP)
    (only,) = counting(case)
    found = _of_keys_alone(Recorded(case.bench), keys_of(case), only)
    assert found == only
    assert line_of(found) == case.line("torch.arange(start + 1")
