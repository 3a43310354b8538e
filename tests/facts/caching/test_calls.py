"""Calls on chunks: what is passed, which row is compared, how a cache begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import torch

from mha_lint.facts.caching.calls import (
    NONE,
    Caller,
    NotRunError,
    Plan,
    emptied,
    forms_of,
    last_row,
    main_output,
)
from tests.facts.caching.conftest import CACHED

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Of: TypeAlias = Callable[[Any], Caller]
PLAN = Plan((), lambda: {"past": NONE}, "")


def test_chunks_of_one_sequence(measured: Measure, caller: Of) -> None:
    one = caller(measured(text=CACHED))
    assert (one.cached, one.tokens) == (5, 9)
    assert one.chunks() == [(5, 6), (6, 7), (7, 8), (8, 9)]
    _, first = one.arguments_for(PLAN, 0, 5, PLAN.start())
    _, step = one.arguments_for(PLAN, 4, 5, {"past": "kept"})
    assert list(first) == ["x"]
    assert step["past"] == "kept"
    assert torch.equal(first["x"][:, 4:], step["x"])


def test_a_call_that_the_module_refuses(measured: Measure, caller: Of) -> None:
    one = caller(measured(text=CACHED))
    with pytest.raises(NotRunError, match="TypeError"):
        one.run(one.fresh(), PLAN, 0, 5, {"past": 3})
    assert one.refused.startswith("TypeError")
    assert one.clash is None


def test_a_join_along_another_axis_is_kept(measured: Measure, caller: Of) -> None:
    case = measured(
        text=CACHED.replace("torch.cat([past[0], k], dim=2)", "torch.cat([past[0], k], dim=1)")
    )
    one = caller(case)
    _, past = one.run(one.fresh(), PLAN, 0, 5, PLAN.start())
    with pytest.raises(NotRunError):
        one.run(one.fresh(), PLAN, 5, 6, {"past": past})
    assert one.clash is not None
    assert one.clash.line == case.line("dim=1")


def test_a_module_that_keeps_something_is_copied(measured: Measure, caller: Of) -> None:
    one = caller(measured(text=CACHED))
    assert one.fresh() is one.module
    keeps = caller(
        measured(("        T, N =", "        self.last = q\n        T, N ="), text=CACHED)
    )
    assert keeps.fresh() is not keeps.module
    a, b = (keeps.run(keeps.fresh(), PLAN, 0, 6, PLAN.start())[0] for _ in range(2))
    assert torch.equal(a, b)
    assert not hasattr(keeps.module, "last")


def test_rows_of_outputs() -> None:
    states = torch.randn(2, 5, 3)
    assert main_output((torch.arange(3), states)) is states
    assert torch.equal(last_row({"logits": states}, 5, 2), states[:, 4])  # type: ignore[arg-type]
    assert torch.equal(last_row(states.transpose(0, 1), 5, 2), states[:, 4])  # type: ignore[arg-type]
    assert torch.equal(last_row(states[:, 4], 5, 2), states[:, 4])  # type: ignore[arg-type]
    assert last_row("nothing", 5, 2) is None


def test_an_empty_cache() -> None:
    pair = (torch.randn(2, 4, 5, 6), [torch.randn(2, 4, 5, 6)])
    first, (second,) = emptied(pair, 2)
    assert first.shape == second.shape == (2, 4, 0, 6)
    assert emptied({"k": torch.zeros(2, 5, 4)}, 1)["k"].shape == (2, 0, 4)
    assert emptied(None, 1) is None


@pytest.mark.parametrize(
    ("name", "like", "forms"),
    [
        ("start_pos", 0, ("number",)),
        ("input_pos", torch.arange(3), ("flat",)),
        ("position_ids", torch.zeros(2, 3).long(), ("rows",)),
        ("offset", torch.tensor(3), ("scalar",)),
        ("position_ids", None, ("rows", "flat", "number")),
        ("offset", None, ("number", "flat", "rows")),
    ],
)
def test_forms_of_places(name: str, like: object, forms: tuple[str, ...]) -> None:
    assert forms_of(name, like) == forms


@pytest.mark.parametrize(
    ("form", "value"), [("number", 5), ("flat", [5, 6]), ("rows", [[5, 6]]), ("scalar", 5)]
)
def test_a_place_is_told(measured: Measure, caller: Of, form: str, value: object) -> None:
    one = caller(measured(text=CACHED.replace("past=None):", "past=None, offset=None):")))
    plan = Plan((("offset", form),), PLAN.start, "")
    _, named = one.arguments_for(plan, 5, 7, {})
    told = named["offset"]
    assert (told.tolist() if isinstance(told, torch.Tensor) else told) == value
