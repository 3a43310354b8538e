"""A causal module with a cache as text, and what drives it step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.cache import callers_of
from mha_lint.facts.caching.arguments import Arguments, arguments_of
from mha_lint.facts.caching.calls import Caller

if TYPE_CHECKING:
    from tests.facts.conftest import Case

CACHED = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.places = nn.Embedding(64, d_model)
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)

    def forward(self, x, past=None):
        start = 0 if past is None else past[0].size(2)
        x = x + self.places(torch.arange(start, start + x.size(1)))
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        T, N = q.size(2), k.size(2)
        hide = torch.ones(T, N).triu(N - T + 1).bool()
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        weights = scores.masked_fill(hide, float("-inf")).softmax(dim=-1)
        merged = (weights @ v).transpose(1, 2).flatten(2)
        return self.out_proj(merged), (k, v)
"""


@pytest.fixture
def arguments() -> Callable[[Case], Arguments]:
    def of(case: Case) -> Arguments:
        found = arguments_of(case.subject, case.bench)
        assert found is not None
        return found

    return of


@pytest.fixture
def caller(arguments: Callable[[Case], Arguments]) -> Callable[[Case], Caller]:
    """Return a function that makes the first caller of a case, with weights drawn anew."""

    def of(case: Case) -> Caller:
        return callers_of(case.subject, case.bench, arguments(case))[0]

    return of
