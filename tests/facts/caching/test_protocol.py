"""How a cache is passed and comes back is found out by trying."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from mha_lint.facts.caching.calls import Caller
from mha_lint.facts.caching.protocol import Trial, plans, size_after, trials
from tests.facts.caching.conftest import CACHED

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Of: TypeAlias = Callable[[Any], Caller]

RETURN = "        return self.out_proj(merged), (k, v)\n"
JOIN = CACHED[CACHED.index("        if past is not None:") : CACHED.index("        T, N =")]
START = "start = 0 if past is None else past[0].size(2)"
DICT = (
    (START, 'start = past["k"].size(2) if past else 0'),
    (
        JOIN,
        "        if past is not None:\n"
        "            if past:\n"
        '                k, v = torch.cat([past["k"], k], 2), torch.cat([past["v"], v], 2)\n'
        '            past["k"], past["v"] = k, v\n',
    ),
    (RETURN, "        return self.out_proj(merged)\n"),
)
OBJECT = (
    (
        "class MHA(nn.Module):",
        "class KVCache:\n    def __init__(self):\n        self.k = self.v = None\n\n\nclass MHA(nn.Module):",
    ),
    (START, "start = 0 if past is None or past.k is None else past.k.size(2)"),
    (
        JOIN,
        "        if past is not None:\n"
        "            if past.k is not None:\n"
        "                k, v = torch.cat([past.k, k], 2), torch.cat([past.v, v], 2)\n"
        "            past.k, past.v = k, v\n",
    ),
    (RETURN, "        return self.out_proj(merged)\n"),
)
HALVES = (
    ("past=None", "past_k, past_v"),
    (START, "start = past_k.size(2)"),
    (JOIN, "        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)\n"),
    (RETURN, "        return self.out_proj(merged), k, v\n"),
)
OWN = (
    ("past=None", "start_pos"),
    ("        self.places", "        self.cache_k = self.cache_v = torch.zeros(2, num_heads, 0, 6)\n        self.places"),
    (START, "start = start_pos"),
    (
        JOIN,
        "        k = self.cache_k = torch.cat([self.cache_k[:, :, :start], k], 2)\n"
        "        v = self.cache_v = torch.cat([self.cache_v[:, :, :start], v], 2)\n",
    ),
    (RETURN, "        return self.out_proj(merged)\n"),
)  # fmt: skip
CASES = [
    ((), "torch.randn(2, 5, 24)", "", "output[1]"),
    (
        ((RETURN, '        return {"logits": self.out_proj(merged), "past": (k, v)}\n'),),
        "torch.randn(2, 5, 24)",
        "",
        "output['past']",
    ),
    (
        ((RETURN, "        return self.out_proj(merged), weights, [k, v]\n"),),
        "torch.randn(2, 5, 24)",
        "",
        "output[2]",
    ),
    (
        ((RETURN, "        return self.out_proj(merged), k, v\n"),),
        "torch.randn(2, 5, 24)",
        "",
        "output[1:]",
    ),
    (DICT, "torch.randn(2, 5, 24)", "{}", "the argument itself"),
    (OBJECT, "torch.randn(2, 5, 24)", "KVCache()", "the argument itself"),
    (
        HALVES,
        "torch.randn(2, 1, 24), torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6)",
        "an empty one, axis 2",
        "output from output[1]",
    ),
    (OWN, "torch.randn(2, 5, 24), 0", "", "the module itself"),
]


def right(caller: Caller) -> Trial | None:
    return next((t for t in trials(caller) if t.reads and max(t.gaps) < 1e-4), None)


@pytest.mark.parametrize(("edits", "call", "words", "place"), CASES)
def test_a_way_to_step(
    measured: Measure,
    caller: Of,
    edits: tuple[tuple[str, str], ...],
    call: str,
    words: str,
    place: str,
) -> None:
    found = right(caller(measured(*edits, text=CACHED, call=call)))
    assert found is not None
    assert (found.plan.words, found.place, len(found.gaps)) == (words, place, 4)


def test_what_a_cache_looks_like(measured: Measure, caller: Of) -> None:
    one = caller(measured(text=CACHED))
    found = right(one)
    assert found is not None
    assert found.grows
    assert not found.coarse
    assert found.sizes[0] == ((2, 4, 5, 6), (2, 4, 5, 6))
    assert found.sizes[-1] == ((2, 4, 9, 6), (2, 4, 9, 6))
    assert size_after(one, found, 3) == ((2, 4, 3, 6), (2, 4, 3, 6))


def test_steps_of_two(measured: Measure, caller: Of) -> None:
    call = "torch.randn(2, 2, 24), (torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))"
    found = right(caller(measured(text=CACHED, call=call)))
    assert found is not None
    assert (found.step, found.grows) == (2, True)


def test_a_place_that_must_be_told(measured: Measure, caller: Of) -> None:
    case = measured(
        ("past=None):", "past=None, offset=0):"), (START, "start = offset"), text=CACHED
    )
    found = right(caller(case))
    assert found is not None
    assert found.plan.places == (("offset", "number"),)
    assert {p.places for p in plans(caller(case))} == {(("offset", "number"),), ()}


def test_a_half_type_in_the_cache(measured: Measure, caller: Of) -> None:
    case = measured(
        (RETURN, "        return self.out_proj(merged), (k.bfloat16(), v.bfloat16())\n"),
        ("torch.cat([past[0], k], dim=2)", "torch.cat([past[0].float(), k], dim=2)"),
        ("torch.cat([past[1], v], dim=2)", "torch.cat([past[1].float(), v], dim=2)"),
        text=CACHED,
    )
    assert next(trials(caller(case))).coarse


def test_no_way(measured: Measure, caller: Of) -> None:
    case = measured((RETURN, "        return self.out_proj(merged)\n"), text=CACHED)
    assert list(trials(caller(case))) == []
