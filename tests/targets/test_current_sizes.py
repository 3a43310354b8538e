"""The sizes of a subject, read off its construction and its call."""

from __future__ import annotations

from collections.abc import Callable

from mha_lint.targets.current_sizes import Sizes, build_expression, read_sizes
from mha_lint.targets.subject import Subject

Open = Callable[..., object]

POOL = """
class Pool(nn.Module):
    def __init__(self, dim, heads, num_queries, window_size=6):
        super().__init__()
        self.asked = nn.Parameter(torch.randn(num_queries, dim))
        self.a = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        return self.a(self.asked.expand(len(x), -1, -1), x, memory)[0]
"""


def sizes(opened: Open, call: str) -> Sizes:
    subject = opened(POOL, "Pool", build="Pool(24, 4, 5)", call=call)
    assert isinstance(subject, Subject)
    return read_sizes(subject, build_expression(subject))


def test_numbers_that_stay_are_told(opened: Open) -> None:
    found = sizes(opened, "torch.randn(3, 7, 24)")
    assert (found.width, found.heads, found.head_dim, found.batch) == (24, 4, 6, 3)
    assert (found.lengths, found.shared) == ((7,), ())
    assert found.fixed == {5}


def test_a_length_of_two_inputs_is_shared(opened: Open) -> None:
    found = sizes(opened, "torch.randn(3, 7, 24), torch.randn(3, 7, 24)")
    assert (found.lengths, found.shared) == ((7,), (7,))
