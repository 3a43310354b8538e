"""Whether the value that a key stands for comes from the position of that key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import NotApplicable
from mha_lint.model.position_facts import Pairing

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
SCORES = "        scores = q @ k.transpose(-2, -1)\n"
CONTEXT = "        context = weights @ v\n"


def before_scores(line: str) -> tuple[str, str]:
    return SCORES, f"        {line}\n{SCORES}"


def test_in_the_order_of_the_input(measured: Measure, known: Known) -> None:
    assert known(measured().site.pairing) == Pairing(True)


@pytest.mark.parametrize(
    "line",
    [
        "k, v = k.flip(2), v.flip(2)",
        "k, v = (torch.cat((z[:, :, 2:], z[:, :, :2]), 2) for z in (k, v))",
        "k = k + torch.arange(T)[:, None].cos()",
    ],
)
def test_both_moved_alike(line: str, measured: Measure, known: Known) -> None:
    assert known(measured(before_scores(line)).site.pairing) == Pairing(True)


@pytest.mark.parametrize(
    ("line", "marked", "expected"),
    [
        ("v = v.flip(2)", "v.flip(2)", Pairing(False, 0, 0, 4)),
        ("k = k.roll(1, 2)", "k.roll(1, 2)", Pairing(False, 0, 4, 0, 1, "k")),
        (
            "v = torch.cat((v[:, :, 2:], v[:, :, :2]), 2)",
            "torch.cat((v[:, :, 2:], v[:, :, :2]), 2)",
            Pairing(False, 0, 0, 2, 2),
        ),
        ("v = v[:, :, [0, 1, 3, 2, 4]]", "v[:, :, [0, 1, 3, 2, 4]]", Pairing(False, 2, 2, 3)),
    ],
)
def test_one_moved_alone(
    line: str, marked: str, expected: Pairing, measured: Measure, known: Known
) -> None:
    case = measured(before_scores(line))
    found = known(case.site.pairing)
    assert case.marked(found.span) == marked
    assert (found.paired, found.slot, found.key, found.value) == (
        False, expected.slot, expected.key, expected.value,
    )  # fmt: skip
    assert (found.shift, found.moved) == (expected.shift, expected.moved)


def test_turned_before_a_norm_and_the_projection(measured: Measure, known: Known) -> None:
    line = "v = self.v_proj(torch.nn.functional.layer_norm(x, (C,)).flip(1))"
    text = f"{line}.view(B, T, self.h, self.d_k).transpose(1, 2)"
    case = measured(before_scores(text))
    found = known(case.site.pairing)
    assert (found.slot, found.key, found.value, found.moved) == (0, 0, 4, "v")
    assert case.marked(found.span) == "torch.nn.functional.layer_norm(x, (C,)).flip(1)"


@pytest.mark.parametrize(
    ("edit", "marked"),
    [
        ((CONTEXT, "        context = weights.flip(-1) @ v\n"), "weights.flip(-1)"),
        (
            ("        weights = scores.softmax", "        weights = scores.flip(-1).softmax"),
            "scores.flip(-1)",
        ),
    ],
)
def test_the_weights_turned(
    edit: tuple[str, str], marked: str, measured: Measure, known: Known
) -> None:
    case = measured(edit)
    found = known(case.site.pairing)
    assert (found.paired, found.slot, found.value) == (False, 0, 4)
    assert case.marked(found.span) == marked


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        (
            (
                (SCORES, SCORES.replace("k.tr", "k[:, :, :-1].tr")),
                (CONTEXT, CONTEXT.replace("@ v", "@ v[:, :, 1:]")),
            ),
            "keys and values are made from different positions",
        ),
        (
            (before_scores("v = v.transpose(2, 3).reshape(B, self.h, T, self.d_k)"),),
            "a key or a value holds channels of several positions",
        ),
    ],
)
def test_no_question_of_order(
    edits: tuple[tuple[str, str], ...], why: str, measured: Measure
) -> None:
    assert measured(*edits).site.pairing == NotApplicable(why)
