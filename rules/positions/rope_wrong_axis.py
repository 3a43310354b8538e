"""The rotation follows the head or the sample, not the position.

What: The table of angles has one row per position, and must meet the axis of positions. On a tensor
laid out as (B, T, h, d) it meets the heads where it is made for the axis before the last, or for
(h, d). Then each head is turned by an angle of its own, the same at all positions. It is measured: at
all positions of one head the queries are turned alike, and those of other heads otherwise.

Why: A turn that is the same for queries and keys of one head cancels in their product: nothing of
the positions is left, and the model does not know the order of its tokens.

Bad:

```python
# build: RotaryAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
import torch.nn.functional as F
from torch import nn


class RotaryAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, half = heads, width // heads // 2
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("speed", 100.0 ** (-torch.arange(half) / half))

    def rotate(self, x):
        angle = torch.arange(x.shape[-2])[:, None] * self.speed
        angle = torch.cat([angle, angle], dim=-1)
        low, high = x.chunk(2, dim=-1)
        return x * angle.cos() + torch.cat([-high, low], dim=-1) * angle.sin()

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = self.rotate(q), self.rotate(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

Good:

```python
# build: RotaryAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
import torch.nn.functional as F
from torch import nn


class RotaryAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, half = heads, width // heads // 2
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("speed", 100.0 ** (-torch.arange(half) / half))

    def rotate(self, x):
        angle = torch.arange(x.shape[-2])[:, None] * self.speed
        angle = torch.cat([angle, angle], dim=-1)
        low, high = x.chunk(2, dim=-1)
        return x * angle.cos() + torch.cat([-high, low], dim=-1) * angle.sin()

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        q, k = self.rotate(q), self.rotate(k)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

References:
- Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", equation 15: the
  angle is the position m times theta_i.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule

_NAMES = {"q": "queries", "k": "keys"}


@site_rule("MHA502", severity=Severity.ERROR, since="0.1")
def rope_wrong_axis(facts: SiteFacts) -> Iterator[Violation]:
    """Flag rotations that differ between heads or samples and not between positions."""
    found = facts.rotary.value.axis
    if found is None:
        return
    names = " and ".join(_NAMES[w] for w in found.operands)
    one = found.axis.removesuffix("s")
    yield Violation(
        f"{names} are rotated by their {one}, not by their position: {found.example}",
        at=found.span or facts.info.at("q", "scores"),
        here=f"the angles run along the {found.axis}",
        why="such turns cancel in q k^T: the order of the tokens is lost",
        help="rotate (B, h, T, d), or give the angles the shape (T, 1, d) for (B, T, h, d)",
        evidence=evidence_of(facts.rotary),
        confirm=f"identity: equal {names} of one {one} stay equal at all positions",
    )
