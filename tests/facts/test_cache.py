"""Cached decoding against the whole sequence: when they agree, how they depart, and at which line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.facts.caching.conftest import CACHED
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

FIXTURES = Path(__file__).parents[2] / "fixtures" / "correct" / "cache"
START = "start = 0 if past is None else past[0].size(2)"
RETURN = "return self.out_proj(merged), (k, v)"
BIASED = (
    (
        "        scores = q @",
        "        here = torch.arange(N - T, N)[:, None]\n        scores = q @",
    ),
    ("math.sqrt(self.d_k)\n", "math.sqrt(self.d_k) - (here - torch.arange(N)).abs() / 3\n"),
)
HIDE = "hide = torch.ones(T, N).triu(N - T + 1).bool()"


def test_steps_that_agree(measured: Measure, known: Known) -> None:
    fact = measured(text=CACHED).facts.cache
    assert (known(fact).argument, known(fact).agrees) == ("past", True)
    assert fact.evidence == "past: 4 steps give what the whole sequence gives"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("edits", "cause", "line"),
    [
        ([(START, "start = 0")], "states", "start = 0"),
        ([(START, START.replace("size(2)", "size(2) + 1"))], "states", "start = "),
        ([*BIASED, ("[past[0], k]", "[k, past[0]]"), ("[past[1], v]", "[v, past[1]]")], "order",
         "[k, past[0]]"),
        ([("[past[1], v]", "[v, past[1]]")], "stored values", "[v, past[1]]"),
        ([(RETURN, "return self.out_proj(merged), (v, k)")], "swapped", "(v, k)"),
        ([(RETURN, "return self.out_proj(merged), new"),
          ("        if past is not None:\n", "        new = (k, v)\n        if past is not None:\n")],
         "keys lost", "new = (k, v)"),
        ([(HIDE, HIDE + " | (torch.arange(N) < N - 2 * T)")],
         "mask", "hide = "),
    ],
)  # fmt: skip
def test_steps_that_depart(
    measured: Measure, known: Known, edits: list[tuple[str, str]], cause: str, line: str
) -> None:
    case = measured(*edits, text=CACHED)
    found = known(case.facts.cache)
    assert (found.agrees, found.cause) == (False, cause)
    assert found.change > 1e-3
    assert found.relative > 1e-3
    assert found.span.line == case.line(line)
    assert case.facts.cache.evidence == "5 positions in one call, then one at a time"  # type: ignore[union-attr]


def test_a_bias_made_for_the_new_positions(measured: Measure, known: Known) -> None:
    bias = (
        "        scores = q @",
        "        here = torch.arange(T)[:, None]\n"
        "        bias = (here - torch.arange(N)).abs() / 3\n"
        "        scores = q @",
    )
    case = measured(bias, ("math.sqrt(self.d_k)\n", "math.sqrt(self.d_k) - bias\n"), text=CACHED)
    found = known(case.facts.cache)
    assert (found.cause, found.span.line) == ("bias", case.line("here = "))


PICTURES = (
    ("past=None):", "past=None, pictures=None):"),
    (
        "        start = 0",
        "        if pictures is not None:\n"
        "            if pictures.size(1) != x.size(1) - 5:\n"
        "                raise ValueError('pictures do not go with the words')\n"
        "            x = x + pictures.mean(1, keepdim=True)\n"
        "        start = 0",
    ),
)


def test_pictures_are_left_out_of_what_is_decoded(measured: Measure, known: Known) -> None:
    call = "torch.randn(2, 7, 24), pictures=torch.randn(2, 2, 24)"
    fact = measured(*PICTURES, text=CACHED, call=call).facts.cache
    assert (known(fact).argument, known(fact).agrees) == ("past", True)


def test_a_fault_is_found_beside_pictures(measured: Measure, known: Known) -> None:
    call = "torch.randn(2, 7, 24), pictures=torch.randn(2, 2, 24)"
    case = measured(*PICTURES, ("[past[1], v]", "[v, past[1]]"), text=CACHED, call=call)
    found = known(case.facts.cache)
    assert (found.agrees, found.cause) == (False, "stored values")
    assert found.span.line == case.line("[v, past[1]]")


@pytest.mark.parametrize("switch", ["use_cache=None", "use_cache=False"])
def test_a_cache_that_nothing_is_returned_for(measured: Measure, why: Why, switch: str) -> None:
    case = measured(
        ("x, past=None):", f"x, past=None, {switch}):"),
        ("0 if past is None else past[0].size(2)", "0 if past is None else past.nothing()"),
        ("        if past is not None:\n", "        if past is not None and past.nothing():\n"),
        (RETURN, "return self.out_proj(merged), weights"),
        text=CACHED,
    )
    assert why(case.facts.cache) == (
        "NotApplicable",
        "asked for past, a call returns what it returns without",
    )


def test_a_triangle_of_the_step_is_named_as_such(measured: Measure, known: Known) -> None:
    case = measured((HIDE, "hide = torch.ones(T, N).triu(1).bool()"), text=CACHED)
    found = known(case.facts.cache)
    (misaligned,) = found.misaligned
    assert (found.cause, misaligned.made) == ("mask", "a step with 5 positions cached")
    assert (misaligned.queries, misaligned.keys, misaligned.last, misaligned.own) == (1, 6, 0, 5)


def test_a_cache_that_is_never_read(measured: Measure, known: Known) -> None:
    unread = CACHED.replace("            k = torch.cat", "            k_all = torch.cat").replace(
        "            v = torch.cat", "            v_all = torch.cat"
    )
    case = measured(text=unread)
    found = known(case.facts.cache)
    assert (found.cause, case.marked(found.span)) == ("unread", "q @ k.transpose(-2, -1)")


def test_a_cache_that_the_module_refuses(measured: Measure, known: Known) -> None:
    case = measured(
        ("torch.cat([past[0], k], dim=2)", "torch.cat([past[0], k], dim=1)"), text=CACHED
    )
    found = known(case.facts.cache)
    assert (found.agrees, found.cause, found.span.line) == (False, "axis", case.line("dim=1"))


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ([(RETURN, "return self.out_proj(merged)")], "the call takes past, and returns nothing to go on with"),
        ([(RETURN, "return self.out_proj(merged), (k[:, :, -3:], v[:, :, -3:])")],
         "past holds no row for each position"),
        ([(HIDE, "hide = torch.zeros(T, N).bool()"),
          ("self.places = ", "self.more = nn.Linear(d_model, d_model)\n        self.places = "),
          (RETURN, "merged = merged + merged.mean(1, keepdim=True)\n        " + RETURN)],
         "in a call on the whole sequence later positions reach earlier ones"),
    ],
)  # fmt: skip
def test_nothing_to_compare(
    measured: Measure, why: Why, edits: list[tuple[str, str]], reason: str
) -> None:
    assert why(measured(*edits, text=CACHED).facts.cache) == ("NotApplicable", reason)


def test_no_cache_at_all(measured: Measure, why: Why) -> None:
    assert why(measured().facts.cache) == (
        "NotApplicable",
        "no argument takes what was computed before",
    )


def test_one_position_at_a_time(measured: Measure, why: Why) -> None:
    single = CACHED.replace("forward(self, x, past=None)", "forward(self, x, past)").replace(
        "        start = ", "        assert x.size(1) == 1\n        start = "
    )
    call = "torch.randn(2, 1, 24), (torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))"
    kind, reason = why(measured(text=single, call=call).facts.cache)
    assert kind == "NotApplicable"
    assert reason == "it takes one position at a time: there is no whole to compare"


def test_a_cache_that_cannot_be_driven_is_left_open(measured: Measure, why: Why) -> None:
    odd = (RETURN, 'return self.out_proj(merged), {"no": merged}')
    kind, reason = why(measured(odd, text=CACHED).facts.cache)
    assert kind == "Unknown"
    assert reason.startswith("no way was found to decode step by step with past (")


def test_tables_of_the_caller_are_his_own(measured: Measure, why: Why) -> None:
    text = CACHED.replace("(self, x, past=None)", "(self, x, cos, past=None)").replace(
        "        T, N =", "        q = q * cos[: q.size(2)].sum() * q.size(2)\n        T, N ="
    )
    kind, _ = why(measured(text=text, call="torch.randn(2, 5, 24), torch.randn(5, 6)").facts.cache)
    assert kind == "Unknown"


def test_the_plain_module_keeps_nothing(measured: Measure, known: Known) -> None:
    fact = measured().facts.state
    assert known(fact).differs is False
    assert fact.evidence == "the module assigns nothing of its own while it runs"  # type: ignore[union-attr]


def test_a_kept_list(measured: Measure, known: Known) -> None:
    text = PLAIN.replace(
        "        self.h = num_heads\n", "        self.h, self.seen = num_heads, []\n"
    ).replace(
        "        context = weights @ v\n",
        "        self.seen.append(v)\n        context = weights @ sum(self.seen)\n",
    )
    case = measured(text=text)
    found = known(case.facts.state)
    assert (found.differs, found.name, found.documented) == (True, "seen", "")
    assert case.marked(found.span) == "self.seen.append(v)"
    assert found.change > 0.01


def test_a_pick_among_equals_departs_by_chance(measured: Measure, known: Known, why: Why) -> None:
    text = (FIXTURES / "keys_with_most_equal_bits.py").read_text()
    case = measured(text=text, build="Stack(32, 4, keep=4)", call="torch.randn(2, 9, 32)")
    assert known(case.facts.cache).agrees
    case = measured(text=text, build="Stack(32, 4, keep=2)", call="torch.randn(2, 9, 32)")
    undefined = "it picks among equal numbers: which of them is not defined"
    assert why(case.facts.cache) == ("Unknown", undefined)
