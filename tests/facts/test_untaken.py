"""Arguments that the source reads on branches that the call did not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.untaken import read_where_not_run
from mha_lint.facts.usage import unused_inputs

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

SIGNATURE = ("forward(self, x)", "forward(self, x, memory=None)")
SWITCH = ("self.h = num_heads", "self.h = num_heads\n        self.reads = reads")
TAKES = ("d_model, num_heads):", "d_model, num_heads, reads=False):")
FIRST = "        B, T, C = x.shape\n"
CALL = "torch.randn(2, 5, 24), torch.randn(2, 5, 24)"


@pytest.mark.parametrize(
    ("lines", "elsewhere"),
    [
        ("        if self.reads:\n            x = x + memory\n", True),
        ("        if self.reads and memory is not None:\n            x = x + memory\n", True),
        ("        x = x + memory if self.reads else x\n", True),
        ("        if not self.reads:\n            x = x * 1\n        else:\n            x = memory\n", True),
        ("        if memory is not None:\n            source = memory\n", False),
        ("        if not memory is None:\n            source = memory\n", False),
        ("        source = x if memory is None else memory\n", False),
        ("        if not self.reads:\n            x = x + 0 * memory.shape[1]\n", False),
        ("        if self.reads:\n            raise ValueError(memory)\n", False),
        ("        if self.reads:\n            x = x + 1\n", False),
    ],
)  # fmt: skip
def test_branches(lines: str, elsewhere: bool, measured: Measure) -> None:
    case = measured(SIGNATURE, SWITCH, TAKES, (FIRST, lines + FIRST), call=CALL)
    assert read_where_not_run(case.bench, "memory") is elsewhere


@pytest.mark.parametrize("guessed", [True, False])
def test_what_a_call_of_ones_own_leaves_unread_is_no_source(
    guessed: bool, measured: Measure
) -> None:
    lines = "        if self.reads:\n            x = x + memory\n"
    case = measured(SIGNATURE, SWITCH, TAKES, (FIRST, lines + FIRST), call=CALL)
    found = unused_inputs(case.bench, case.bench.sites, guessed=guessed)
    ((name, source),) = [(u.name, u.looks_like_source) for u in found.value]
    assert (name, source) == ("memory", not guessed)
