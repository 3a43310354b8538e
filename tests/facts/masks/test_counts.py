"""Arguments that count real positions."""

from __future__ import annotations

import pytest

from mha_lint.facts.masks.counts import counts_real, is_called_length, says_length
from tests.facts.conftest import Case, Measure
from tests.facts.masks.masked import MASKED

CALL = "torch.randn(3, 7, 24), torch.tensor([5, 4, 6])"
READ = "the state at that place less one is read, which is each sample's last real one"
INSIDE = ("mask[:, None, None, :] == 0", "(torch.arange(T) < n[:, None])[:, None, None]")
ARGUMENT = ("forward(self, x, mask)", "forward(self, x, n)")
END = "        return self.out(context.transpose(1, 2).reshape(B, T, C))"


def counted(measured: Measure, end: str, *edits: tuple[str, str]) -> Case:
    """Return the module whose argument n is compared with positions, and which ends in `end`."""
    last = (END, f"        y = self.out(context.transpose(1, 2).reshape(B, T, C))\n        {end}")
    return measured(ARGUMENT, INSIDE, last, *edits, text=MASKED, call=CALL)


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("return y[torch.arange(B), n - 1]", READ),
        ("return y.gather(1, (n - 1)[:, None, None].expand(-1, 1, C))", READ),
        ("return y.sum(1) / n[:, None]", "a sum of states is divided by it"),
        ("return y[torch.arange(B), n]", ""),
        ("return y * n[:, None, None]", ""),
        ("return y", ""),
    ],
)
def test_what_else_is_done_with_a_number(end: str, says: str, measured: Measure) -> None:
    case = counted(measured, end)
    assert counts_real(case.bench, case.bench.recording.placeholders[1]) == says


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("# n: (B,) number of real events", "n: (B,) number of real events"),
        ("# n: how many positions in front are padding", ""),
        ("# n: a number of heads to skip", ""),
        ("# nothing is said of it", ""),
    ],
)
def test_what_comments_say(comment: str, says: str, measured: Measure) -> None:
    case = counted(measured, "return y", ("        B, T, C", f"        {comment}\n        B, T, C"))
    assert says_length(case.subject, [], "n").removeprefix("# ") == says


def test_names() -> None:
    assert [is_called_length(n) for n in ("lengths", "n_valid", "prefix_len", "n")] == [
        True, True, False, False,
    ]  # fmt: skip
