"""The values are rotated by position, and nothing rotates them back.

What: Rotary position embedding turns queries and keys, so that their product depends on distance.
The values are summed as they are. Here they are turned too. Methods that turn the values and turn
the sum back at the query's position (relative transforms of the values) are fine.

Why: What a token contributes then depends on where it stands, and the sum is in no common frame: two
equal values at different positions may cancel. It trains, but it is not what the method does, and
weights of other implementations will not fit.

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
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), self.rotate(v))
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
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v)
        return self.out(y.transpose(1, 2).flatten(2))
```

References:
- Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2: f is
  applied to queries and keys; the values are not rotated.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Known, Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA503", severity=Severity.WARNING, since="0.1")
def rope_on_values(facts: SiteFacts) -> Iterator[Violation]:
    """Flag values that are rotated by position."""
    rotary = facts.rotary.value
    if not rotary.values_turned or ("k" not in rotary.turned and _exchanged(facts)):
        return
    yield Violation(
        "the values are rotated by position as well, and the result is not rotated back",
        at=rotary.values or facts.info.at("v", "value"),
        here="rotates the values",
        why="equal values at different positions no longer add up",
        help="rotate q and k only",
        evidence=evidence_of(facts.rotary),
        confirm="identity: equal values at two positions come out of the rotation different",
    )


def _exchanged(facts: SiteFacts) -> bool:
    """Return whether keys and values stand in each other's place: that is another fault."""
    match facts.roles:
        case Known(value=roles):
            return bool(roles.exchanged) or roles.value_is != "v"
    return False
