"""Which lines a reader is sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.places import hands_all_on
from mha_lint.model.source import Span
from mha_lint.sites.dependence import stack_of

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

WRAPPED = """\
import functools


def with_tuple(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        found = function(self, *args, **kwargs)
        return (found,)

    return wrapper


class Inner(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Normed(nn.Module):
    def __init__(self, d_model, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(d_model), inner

    def forward(self, x, *rest):
        return self.inner(self.norm(x), *rest)


class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.layer = Normed(d_model, Inner(d_model, num_heads))

    @with_tuple
    def forward(self, x, memory):
        return x + self.layer(x)
"""


@pytest.mark.parametrize(
    ("line", "hands_on"),
    [
        ("found = function(self, *args, **kwargs)", True),
        ("return (found,)", False),
        ("return self.inner(self.norm(x), *rest)", False),
        ("return x + self.layer(x)", False),
    ],
)
def test_a_decorator_hands_all_on(line: str, hands_on: bool, measured: Measure) -> None:
    case = measured(text=WRAPPED, call="torch.randn(2, 5, 24), torch.randn(2, 5, 24)")
    (path,) = {f.span.path for f in stack_of(case.bench.sites[0].all[0].context)}
    number = case.line(line)
    assert hands_all_on(Span(path, number, 1, number, 80)) is hands_on


def test_a_call_is_where_the_method_makes_it_and_not_its_decorator(measured: Measure) -> None:
    case = measured(text=WRAPPED, call="torch.randn(2, 5, 24), torch.randn(2, 5, 24)")
    span = case.site.info.spans["call"]
    assert case.marked(span) == "self.layer(x)"
