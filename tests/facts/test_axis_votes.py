"""Tables of positions and convolutions tell samples from positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.axis_votes import by_convolutions, by_tables
from mha_lint.facts.axis_words import AxisVerdict
from mha_lint.facts.bench import Bench

ALONG = AxisVerdict(False, "a table of positions is added along it")
BESIDE = AxisVerdict(True, "a table of positions is added along another axis")


class Model(nn.Module):
    def __init__(self, add: Callable[[Model, Tensor], Tensor]) -> None:
        super().__init__()
        self.embed, self.attend = nn.Embedding(40, 8), nn.MultiheadAttention(8, 2)
        self.places = nn.Parameter(torch.randn(16, 8))
        self.kernel = nn.Conv1d(8, 8, 3, padding=1)
        self.add = add

    def forward(self, ids: Tensor) -> Tensor:
        x = self.add(self, self.embed(ids))
        y: Tensor = self.attend(x, x, x, need_weights=False)[0]
        return y


def bench(add: Callable[[Model, Tensor], Tensor]) -> Bench:
    return Bench.of(record(Model(add), (torch.randint(0, 40, (7, 3)),), {}))


@pytest.mark.parametrize(
    ("add", "votes"),
    [
        (lambda m, x: x + m.places[: len(x), None], [ALONG]),
        (lambda m, x: m.places[: x.shape[0]].unsqueeze(1) + x * 3, [ALONG]),
        (lambda m, x: x + m.places[: x.shape[1]], [BESIDE]),
        (lambda m, x: x + m.places[0], []),
        (lambda m, x: (x.unflatten(-1, (2, 4)) + m.places[0].view(2, 4)).flatten(2), []),
        (lambda m, x: x + m.places[:7, None] * m.places[:3], []),
        (lambda m, x: x, []),
    ],
)
def test_what_a_table_says(
    add: Callable[[Model, Tensor], Tensor], votes: list[AxisVerdict]
) -> None:
    made = bench(add)
    assert by_tables(made, made.recording.placeholders[0]) == votes


def test_what_a_convolution_says() -> None:
    made = bench(lambda m, x: m.kernel(x.transpose(1, 2)).transpose(1, 2))
    treats = AxisVerdict(True, "a convolution treats it as its samples")
    assert by_convolutions(made, made.recording.placeholders[0]) == [treats]
    made = bench(lambda m, x: m.kernel(x.permute(1, 2, 0)).permute(2, 0, 1))
    runs = AxisVerdict(False, "a convolution runs over it")
    assert by_convolutions(made, made.recording.placeholders[0]) == [runs]
