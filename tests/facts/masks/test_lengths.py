"""Masks of lengths that end one position too late or too early."""

from __future__ import annotations

import pytest

from tests.facts.conftest import Measure
from tests.facts.masks.masked import MASKED
from tests.facts.masks.test_bands import misplaced

CALL = "torch.randn(3, 6, 24), torch.tensor([6, 4, 5])"
ARGUMENT = ("forward(self, x, mask)", "forward(self, x, lengths)")
HIDDEN = "mask[:, None, None, :] == 0"
CLASS_TOKEN = (
    "        B, T, C = x.shape",
    "        x = torch.cat([self.qkv.weight[:1].expand(len(x), 1, -1), x], 1)\n"
    "        B, T, C = x.shape",
)  # fmt: skip


def hidden(how: str) -> tuple[str, str]:
    return HIDDEN, f"(torch.arange(T) {how})[:, None, None]"


def test_the_first_padded_position_is_shown(measured: Measure) -> None:
    edit = hidden("> lengths[:, None]")
    case = measured(ARGUMENT, edit, text=MASKED, call=CALL)
    (one,) = misplaced(case)
    assert (one.kind, one.certain, one.mask) == ("beyond", True, "the mask made from lengths")
    assert one.says == (
        "lengths is 4 for sample 1: it and the first position behind it are visible"
    )
    assert case.marked(one.span) == "torch.arange(T) > lengths[:, None]"


def test_the_last_position_is_hidden_with_a_class_token(measured: Measure) -> None:
    case = measured(ARGUMENT, hidden(">= lengths[:, None]"), CLASS_TOKEN, text=MASKED, call=CALL)
    (one,) = misplaced(case)
    assert (one.kind, one.certain) == ("within", True)
    assert one.says == "lengths is 6 for sample 0: its last position is hidden"


@pytest.mark.parametrize(
    ("how", "edits", "call"),
    [
        (">= lengths[:, None]", (), CALL),
        ("> lengths[:, None] - 1", (), CALL),
        ("> lengths[:, None]", (CLASS_TOKEN,), CALL),
        # No sample is full: the numbers may well be last places.
        ("> lengths[:, None]", (), CALL.replace("[6, 4, 5]", "[5, 3, 4]")),
    ],
)
def test_right_lengths(
    how: str, edits: tuple[tuple[str, str], ...], call: str, measured: Measure
) -> None:
    assert misplaced(measured(ARGUMENT, hidden(how), *edits, text=MASKED, call=call)) == ()
