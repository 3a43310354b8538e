"""Queries and keys are not rotated alike.

What: With rotary position embedding the score of query i and key j depends on i - j, because both
are turned by their own position with the same angles. Here only one of the two is turned, or keys
are turned the other way, by other angles, or by the angles of another position. Where keys of
earlier calls stand beside those of this one, positions may differ, which another rule judges.

Why: If only one side turns, the score depends on where the query stands, not on the distance; if the
two turn in opposite directions, it depends on i + j. A shift by one makes each token look one
place aside.

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
        y = F.scaled_dot_product_attention(self.rotate(q), k, v)
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
- Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", equations 11 and
  16: q_m^T k_n is a function of x_m, x_n and m - n only.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Known,
    Label,
    Severity,
    SiteFacts,
    UnevenTurns,
    Violation,
    evidence_of,
    site_rule,
)

_NAMES = {"q": "queries", "k": "keys"}


@site_rule("MHA507", severity=Severity.ERROR, since="0.1")
def rope_one_sided(facts: SiteFacts) -> Iterator[Violation]:
    """Flag rotations of queries and keys that do not fit together."""
    found = facts.rotary.value.uneven
    if found is None or _exchanged(facts):
        return
    other = Label(found.other_span, _NAMES[found.other]) if found.other_span is not None else None
    yield Violation(
        f"{_message(found)}: {found.example}",
        at=found.span or facts.info.at(found.turned, "scores"),
        here=f"rotates the {_NAMES[found.turned]}"
        + (" only" if found.fault == "one-sided" else ""),
        why="the score of query i and key j is no function of the distance i - j"
        if found.fault != "shifted"
        else "each query takes the key beside the one at its distance",
        help="rotate q and k with the same angles, each by its own position",
        evidence=evidence_of(facts.rotary),
        labels=(other,) if other is not None else (),
        confirm=f"identity: {found.example}",
    )


def _message(found: UnevenTurns) -> str:
    one, other = _NAMES[found.turned], _NAMES[found.other]
    match found.fault:
        case "one-sided":
            return f"only the {one} are rotated by position, the {other} are not"
        case "opposite":
            return "queries and keys are rotated in opposite directions"
        case "shifted":
            away = "one position" if abs(found.shift) == 1 else f"{abs(found.shift)} positions"
            return f"keys are rotated as if they stood {away} aside"
        case _:
            return "queries and keys of one position are rotated by different angles"


def _exchanged(facts: SiteFacts) -> bool:
    """Return whether keys and values stand in each other's place: that is another fault."""
    match facts.roles:
        case Known(value=roles):
            return bool(roles.exchanged) or roles.value_is != "v"
    return False
