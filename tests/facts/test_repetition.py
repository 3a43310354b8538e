"""Key/value heads that are repeated along another axis than that of the heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.repetition import wrong_repeat
from tests.facts.test_groups import GROUPED, KEYS, VALUES

if TYPE_CHECKING:
    from mha_lint.model.position_facts import WrongRepeat
    from tests.facts.conftest import Case, Measure

BUILD = "MHA(24, 6, 2)"


def repeat_of(case: Case) -> WrongRepeat | None:
    return wrong_repeat(case.bench, case.bench.sites[0])


def changed(measured: Measure, keys: str, *, both: bool = True, batch: int = 2) -> Case:
    """Return the grouped module with another way to repeat, `t` standing for k and v."""
    edits = [(KEYS, f"        k = {keys.replace('t.', 'k.')}\n")]
    if both:
        edits.append((VALUES, f"        v = {keys.replace('t.', 'v.')}\n"))
    return measured(*edits, text=GROUPED, build=BUILD, call=f"torch.randn({batch}, 5, 24)")


@pytest.mark.parametrize(
    ("keys", "axis", "example"),
    [
        ("t.repeat_interleave(n, dim=2).view(B, self.h, T, self.d_k)", "positions",
         "the keys of query head 0 are of positions 0, 0, 0, 1, 1, ..."),
        ("t.transpose(1, 2).repeat(1, n, 1, 1).view(B, T, self.h, self.d_k).transpose(1, 2)",
         "positions", ""),
        ("t.transpose(1, 2).flatten(2).repeat_interleave(n, -1).view(B, T, self.h, self.d_k)"
         ".transpose(1, 2)", "channels",
         "one key of the first head holds the channels 0, 0, 0, 1, ..."),
    ],
)  # fmt: skip
def test_other_axes(measured: Measure, keys: str, axis: str, example: str) -> None:
    found = repeat_of(changed(measured, keys))
    assert found is not None
    assert (found.axis, found.operand) == (axis, "k")
    assert not example or found.example == example


def test_samples(measured: Measure) -> None:
    case = changed(measured, "t.repeat(n, 1, 1, 1).view(B, self.h, T, self.d_k)", batch=3)
    found = repeat_of(case)
    assert found is not None
    assert (found.axis, found.example) == (
        "samples", "queries of sample 0 meet keys of sample 1"
    )  # fmt: skip
    assert case.marked(found.span) == "k.repeat(n, 1, 1, 1)"


def test_values_alone(measured: Measure) -> None:
    wrong = "        v = v.repeat_interleave(n, dim=2).view(B, self.h, T, self.d_k)\n"
    case = measured((VALUES, wrong), text=GROUPED, build=BUILD)
    found = repeat_of(case)
    assert found is not None
    assert (found.axis, found.operand) == ("positions", "v")
    assert case.marked(found.span) == "v.repeat_interleave(n, dim=2)"


@pytest.mark.parametrize(
    "keys",
    [
        "t.repeat_interleave(n, dim=1)",
        "t.repeat(1, n, 1, 1)",
        "t.transpose(1, 2).flatten(2).repeat(1, 1, n).view(B, T, self.h, self.d_k).transpose(1, 2)",
        "t.transpose(1, 2).repeat_interleave(n, 1).view(B, T, self.h, self.d_k).transpose(1, 2)",
        "t.repeat(1, 1, n, 1).view(B, self.h, T, self.d_k)",
    ],
    ids=["blocks", "tiles", "tiles of channels", "tiles by a detour", "blocks by a detour"],
)
def test_heads(measured: Measure, keys: str) -> None:
    assert repeat_of(changed(measured, keys)) is None


def test_without_shared_heads_nothing_is_judged(measured: Measure) -> None:
    assert repeat_of(measured()) is None
    flipped = ("        scores = q @", "        k = torch.cat((k, k), 2)\n        scores = q @")
    doubled = (
        "        context = weights @",
        "        v = torch.cat((v, v), 2)\n        context = weights @",
    )
    assert repeat_of(measured(flipped, doubled)) is None
