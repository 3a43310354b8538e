"""A relative shift puts the product of one query into the row of another.

What: Transformer-XL and others compute the product of each query with all relative positions, and
shift the rows into place by padding and reshaping. The trick of Transformer-XL is right up to the
query's own place only: behind it, it fills in the next query's row, which a causal mask hides. Here
such elements are visible. It is measured: each visible score must hold products of its own query or
its own key only. With the padding behind the products instead of in front, each score gets that of
its neighbour, and the query's own place gets none.

Why: In a bidirectional encoder the score of query i and a later key j then depends on query i + 1,
with the relative position of quite another pair. Nothing crashes, and the model trains.

Bad:

```python
# build: RelativeAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class RelativeAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.places = nn.Parameter(torch.randn(heads, 2 * 16 - 1, width // heads))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        t = x.shape[1]
        far = q @ self.places[:, :t].transpose(-2, -1)
        far = torch.cat([far.new_zeros(*far.shape[:3], 1), far], dim=-1)
        far = far.flatten(2)[:, :, t:].unflatten(-1, (t, -1))
        scores = (q @ k.transpose(-2, -1) + far) / q.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
```

Good:

```python
# build: RelativeAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class RelativeAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.places = nn.Parameter(torch.randn(heads, 2 * 16 - 1, width // heads))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        t = x.shape[1]
        far = q @ self.places[:, 16 - t : 15 + t].transpose(-2, -1)
        far = torch.cat([far, far.new_zeros(*far.shape[:3], 1)], dim=-1)
        far = far.flatten(2)[:, :, t - 1 : -1].unflatten(-1, (t, -1))[..., :t]
        scores = (q @ k.transpose(-2, -1) + far) / q.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
```

References:
- Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", appendix
  B (efficient computation of the attention with relative positional embedding), which is causal.
- Huang et al. 2018, "Music Transformer", section 3.4.1 (skewing), which is causal as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA506", severity=Severity.ERROR, since="0.1")
def wrong_relative_shift(facts: SiteFacts) -> Iterator[Violation]:
    """Flag visible scores that hold a shifted product of another query."""
    found = facts.position_bias.value.shift
    if found is None:
        return
    if found.row < 0:
        yield Violation(
            f"the relative shift is off by one: the score of query {found.query} and key {found.key}"
            " holds padding",
            at=found.span or facts.info.at("scores"),
            here="the padding joins the products here",
            why=f"{found.count} of {found.visible} visible scores of one head have no relative"
            " product, and all others that of their neighbour",
            help="put the column of zeros in front: F.pad(x, (1, 0))",
            evidence=evidence_of(facts.position_bias),
            confirm=f"witness: no relative product moves score ({found.query}, {found.key})",
        )
        return
    yield Violation(
        f"the relative shift mixes rows: the score of query {found.query} and key {found.key} holds"
        f" the product of query {found.row}",
        at=found.span or facts.info.at("scores"),
        here="rows of other queries end up here",
        why=f"{found.count} of {found.visible} visible scores of one head depend on another query",
        help="use all 2T - 1 relative positions, or hide the keys behind each query",
        evidence=evidence_of(facts.position_bias),
        confirm=f"witness: changing query {found.row} alone moves score"
        f" ({found.query}, {found.key})",
    )
