"""What the user's source says about axis 0."""

from __future__ import annotations

import pytest

from mha_lint.facts.axis_words import AxisVerdict, said_in


@pytest.mark.parametrize(
    ("line", "is_batch"),
    [
        ("B, T, C = x.shape", True),
        ("T, B, C = x.size()", False),
        ("y = x.mean(dim=1)", True),
        ("y = x.mean(0)", False),
        ("y = x[:, 0]", True),
        ("t = token.expand(x.size(0), -1, -1)", True),
        ("t = token.expand(x.shape[0], -1, -1)", True),
    ],
)
def test_code_that_tells(line: str, is_batch: bool) -> None:
    (found,) = said_in(f"def forward(self, x):\n    {line}\n")
    assert (found.is_batch, found.strong) == (is_batch, True)
    assert line.partition(" = ")[2] in found.why or line in found.why


@pytest.mark.parametrize(
    "line",
    [
        "h, w, c = x.shape",
        "later = places[None, :] > places[:, None]",
        "e = (s - s.amax(1, keepdim=True)).exp()",
        "n = x.size(0)",
        "y = x.mean(-1)",
        "t = token.expand(-1, x.size(1), -1)",
        "t = token.expand(x.size(0), n, -1)",
        "this is no code",
    ],
)
def test_code_that_tells_nothing(line: str) -> None:
    assert said_in(f"def forward(self, x):\n    {line}\n") == []


def test_a_comment_is_weaker_than_code() -> None:
    why = "a comment or docstring writes the shape batch-first"
    assert said_in("def forward(self, x):\n    return x  # (batch, time, width)\n") == [
        AxisVerdict(True, why, strong=False)
    ]


@pytest.mark.parametrize("line", ["B, T = x.size(1), x.size(0)", "bsz = x.shape[1]"])
def test_the_size_of_axis_1_that_is_called_a_batch(line: str) -> None:
    (found,) = said_in(f"def forward(self, x):\n    {line}\n")
    assert (found.is_batch, found.strong) == (False, True)
