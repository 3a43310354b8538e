"""From a wrong position to the line that computed it, through slices, calls and helpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.caching.lines import returned_line
from tests.facts.caching.conftest import CACHED

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

START = "        start = 0 if past is None else past[0].size(2)\n"
ADD = "        x = x + self.places(torch.arange(start, start + x.size(1)))\n"
FIRST = "        self.places = nn.Embedding(64, d_model)\n"
TABLE = "        self.table = nn.Parameter(torch.randn(64, d_model))\n"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("x = x + self.table[: x.size(1)]",), "x + self.table"),
        (("here = torch.arange(x.size(1))", "x = x + self.table[here]"), "here = "),
        (("first = x.size(1) - x.size(1)", "x = x + self.table[first : first + x.size(1)]"), "first = "),
        (("first = 0 if past is None else past[0].size(1)", "x = x + self.table.narrow(0, first, x.size(1))"),
         "first = "),
        (("here = torch.ones(x.shape[:2]).cumsum(1).long() - 1", "x = x + F.embedding(here, self.table)"),
         "here = "),
    ],
)  # fmt: skip
def test_the_line_of_a_position(
    measured: Measure, known: Known, lines: tuple[str, ...], line: str
) -> None:
    body = "".join(f"        {one}\n" for one in lines)
    case = measured((START + ADD, body), (FIRST, TABLE), text=CACHED)
    found = known(case.facts.cache)
    assert (found.cause, found.span.line) == ("states", case.line(line))


HELPER = "\n    def put(self, x, {parameters}):\n        {body}\n"


@pytest.mark.parametrize(
    ("parameters", "body", "call", "line"),
    [
        # The helper is told one length: its caller counts wrongly.
        ("count", "return x + self.table[torch.arange(count)]", "self.put(x, x.size(1))", "self.put(x"),
        # It is told two, and could count from the difference.
        ("count, total", "return x + self.table[torch.arange(count)] + torch.zeros(total)[0]",
         "self.put(x, x.size(1), 9)", "torch.arange(count)"),
        # Where it starts is told by the caller.
        ("first", "return x + self.table[first : first + x.size(1)]", "self.put(x, at)", "at = "),
    ],
)  # fmt: skip
def test_positions_of_a_helper(
    measured: Measure, known: Known, parameters: str, body: str, call: str, line: str
) -> None:
    text = CACHED + HELPER.format(parameters=parameters, body=body)
    lines = f"        at = x.size(1) - x.size(1)\n        x = {call}\n"
    case = measured((START + ADD, lines), (FIRST, TABLE), text=text)
    assert known(case.facts.cache).span.line == case.line(line)


def test_what_is_returned(measured: Measure) -> None:
    case = measured(text=CACHED)
    for place in ("output[1]", "output[1:]", "the module itself"):
        span = returned_line(case.subject.module, place)
        assert span is not None
        assert span.line == case.line("return self.out_proj(merged), (k, v)")
    named = measured(
        ("        return self.out_proj(merged), (k, v)", "        kept = (k, v)\n        return self.out_proj(merged), kept"),
        text=CACHED,
    )  # fmt: skip
    span = returned_line(named.subject.module, "output[1]")
    assert span is not None
    assert span.line == named.line("kept = (k, v)")


COUNT = "return x + self.table[torch.arange(x.size(1)) + first]"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        # It counts from what it is told, and is told 0.
        ("0", "self.put(x, 0)"),
        ("x.size(1) - x.size(1) + 3", "torch.arange(x.size(1)) + first"),
    ],
)
def test_a_helper_that_is_told_to_count_from_zero(
    measured: Measure, known: Known, told: str, line: str
) -> None:
    put = f"        x = self.put(x, {told})\n"
    helper = HELPER.format(parameters="first", body=COUNT)
    case = measured(
        (START + ADD, put),
        (FIRST, TABLE),
        ("\n    def split", f"{helper}\n    def split"),
        text=CACHED,
    )
    found = known(case.facts.cache)
    assert (found.cause, found.span.line) == ("states", case.line(line))
