"""The rotation pairs channels in another way than its table of angles.

What: Rotary position embedding turns channels in pairs: either neighbours (0, 1), (2, 3), ... or the
two halves (0, d/2), (1, d/2 + 1), .... Both channels of a pair must be turned by one angle, one of
them with a minus sign, and must stay in one head. Here the table was laid out for the other kind of
pairs, a sign is missing, or a channel stands in several pairs. It is measured: what is done to a
vector at each position is taken apart into the two channels that each feature holds. Part of the
channels, several axes, either direction, scaled and learned frequencies are all fine.

Why: The map is then no rotation. The length of a query changes with its position, and the product of
a query and a key no longer depends on their distance alone, which is what the method is for.

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
        angle = angle.repeat_interleave(2, dim=-1)
        low, high = x.chunk(2, dim=-1)
        return x * angle.cos() + torch.cat([-high, low], dim=-1) * angle.sin()

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v)
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
- Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2,
  equations 14 to 16, and equation 34 (neighbours as pairs).
- Hugging Face transformers, modeling_llama: rotate_half pairs the two halves, and cos and sin are
  laid out as torch.cat((freqs, freqs), dim=-1).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Label,
    PairFault,
    Severity,
    SiteFacts,
    Violation,
    WrongPairs,
    evidence_of,
    site_rule,
)

_MESSAGES = {
    PairFault.ANGLES: "the table of angles pairs other channels than the rotation does",
    PairFault.SIGNS: "the rotation lacks a minus sign",
    PairFault.PARTNERS: "the rotation puts one channel into several pairs",
    PairFault.ALONE: "the rotation adds each channel to itself, not to its partner",
    PairFault.TORN: "the rotation pairs channels of different heads",
}
_HELP = {
    PairFault.ANGLES: "torch.cat((angles, angles), -1) for pairs of halves, "
    "angles.repeat_interleave(2, -1) for pairs of neighbours",
    PairFault.SIGNS: "(a, b) becomes (a cos - b sin, a sin + b cos)",
    PairFault.PARTNERS: "torch.cat((-b, a), -1) with a, b = x.chunk(2, -1), or "
    "torch.stack((-b, a), -1).flatten(-2) with a = x[..., ::2], b = x[..., 1::2]",
    PairFault.ALONE: "with a, b = x.chunk(2, -1): x * cos + torch.cat((-b, a), -1) * sin",
    PairFault.TORN: "split into heads first, then rotate each head",
}


@site_rule("MHA501", severity=Severity.ERROR, since="0.1")
def rope_pairing(facts: SiteFacts) -> Iterator[Violation]:
    """Flag maps of pairs by position that are no rotations."""
    found = facts.rotary.value.pairs
    if found is None:
        return
    at = found.table or found.rotation or facts.info.at("q", "scores")
    labels = (
        (Label(found.rotation, "is rotated here"),)
        if found.table is not None and found.rotation is not None
        else ()
    )
    yield Violation(
        f"{_MESSAGES[found.fault]}: {found.example}",
        at=at,
        here="laid out for other pairs" if found.table is not None else "no rotation",
        why="products of queries and keys do not depend on their distance alone",
        help=_HELP[found.fault],
        evidence=evidence_of(facts.rotary),
        labels=labels,
        confirm=_proof(found),
    )


def _proof(found: WrongPairs) -> str | None:
    low, high = found.stretch
    if low == high:
        return None
    return f"identity: at some position a vector of length 1 becomes {low:.2g}, another {high:.2g} long"
