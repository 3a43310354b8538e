"""The linear bias (ALiBi) has the wrong sign, slopes or distances.

What: ALiBi takes m_h * (distance of query and key) off each score, with the slopes m_h = 2^(-8 h / H)
of the H heads (for other head counts than powers of two, those of the next lower one and every second
one of the next higher). Here the bias grows with the distance, goes on growing behind the query,
has one slope for all heads or other slopes, follows the query, or counts distances from another place
than the query's, as happens beside a cache. A bias by key alone under a causal mask differs by a
constant in each row, and is right. Learned slopes, tables, buckets and other decays are not judged.

Why: With the wrong sign far keys win. With distances counted from the wrong place the bias cancels
in the softmax, or pulls to the wrong key, as soon as a cache is used.

Bad:

```python
# build: LinearBiasAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class LinearBiasAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("slopes", 2.0 ** (-8 * torch.arange(1, heads + 1) / heads))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        place = torch.arange(x.shape[1])
        distance = (place[:, None] - place).abs()
        scores = scores + self.slopes[:, None, None] * distance
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
```

Good:

```python
# build: LinearBiasAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class LinearBiasAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("slopes", 2.0 ** (-8 * torch.arange(1, heads + 1) / heads))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        place = torch.arange(x.shape[1])
        distance = (place[:, None] - place).abs()
        scores = scores - self.slopes[:, None, None] * distance
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
```

References:
- Press, Smith and Lewis 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input
  Length Extrapolation", section 3, and the authors' get_slopes for other head counts.
- MosaicML llm-foundry, gen_slopes: every second slope of the next higher power of two.
- Hugging Face transformers, modeling_falcon: the bias is scaled together with the scores.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Severity,
    SiteFacts,
    SlopeFault,
    Violation,
    WrongSlopes,
    evidence_of,
    site_rule,
)

_MESSAGES = {
    SlopeFault.SIGN: "the linear bias favours far keys",
    SlopeFault.FUTURE: "the linear bias favours the keys furthest behind the query",
    SlopeFault.SAME: "the linear bias is the same in all heads",
    SlopeFault.SLOPES: "the slopes of the linear bias are not those of ALiBi",
    SlopeFault.ROWS: "the slopes of the linear bias run along the queries, not along the heads",
    SlopeFault.OFFSET: "the linear bias counts distances from another place than the query's",
    SlopeFault.FLAT: "the linear bias is the same for all keys, and cancels in the softmax",
}
_HELP = {
    SlopeFault.SIGN: "subtract slope * |i - j|",
    SlopeFault.FUTURE: "take the absolute distance |i - j|, or hide later keys",
    SlopeFault.OFFSET: "query i is key i + T_k - T_q where earlier keys are cached",
    SlopeFault.FLAT: "make the positions from the number of keys, not of queries",
    SlopeFault.ROWS: "give the slopes the shape (h, 1, 1)",
}


@site_rule("MHA505", severity=Severity.ERROR, since="0.1")
def wrong_alibi_bias(facts: SiteFacts) -> Iterator[Violation]:
    """Flag linear biases that depart from ALiBi's definition."""
    found = facts.position_bias.value.slopes
    if found is None:
        return
    yield Violation(
        f"{_MESSAGES[found.fault]}: {found.example}",
        at=found.span or facts.info.at("scores"),
        here="the bias comes from here",
        why="keys are preferred by something else than how near they are",
        help=_HELP.get(found.fault, f"the slopes are {_listed(found.due)}"),
        evidence=(*_slopes(found), *evidence_of(facts.position_bias)),
        severity=None if found.sure else Severity.WARNING,
        confirm=f"identity: {found.example}",
    )


def _slopes(found: WrongSlopes) -> tuple[str, ...]:
    if not found.slopes:
        return ()
    due = _listed(found.due)
    return (f"the bias rises towards the query by {_listed(found.slopes)}; ALiBi by {due}",)


def _listed(slopes: tuple[float, ...]) -> str:
    return ", ".join(f"{s:.4g}" for s in slopes[:8]) + (", ..." if len(slopes) > 8 else "")
