"""Queries made from the keys: routing by agreement is left open, attention is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mha_lint.facts.routing import WHY

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Why = Callable[[Any], tuple[str, str]]

CAPSULES = """\
class Capsules(nn.Module):
    def __init__(self, width, capsules, size):
        super().__init__()
        self.capsules, self.size = capsules, size
        self.vote = nn.Linear(width, capsules * size, bias=False)

    def forward(self, x):
        u = self.vote(x).unflatten(-1, (self.capsules, self.size))
        share = torch.zeros(u.shape[:3])
        for _ in range(2):
            share = share + torch.einsum("bio,biod->bod", share.softmax(-1), u).mul(1)[:, None].mul(u).sum(-1)
        return torch.einsum("bio,biod->bod", share.softmax(-1), u)
"""


def test_routing_is_left_open(measured: Measure, why: Why) -> None:
    case = measured(text=CAPSULES, build="Capsules(8, 4, 6)", call="torch.randn(2, 10, 8)")
    for site in case.facts.sites:
        for fact in (site.normaliser, site.merge, site.split_q, site.roles, site.output_projection):
            assert why(fact) == ("Unknown", WHY)


def test_attention_is_not(measured: Measure) -> None:
    site = measured().site
    assert all(WHY not in str(getattr(site, n)) for n in ("normaliser", "merge", "roles"))
