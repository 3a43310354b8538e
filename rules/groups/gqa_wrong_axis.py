"""Key/value heads are repeated along another axis than that of the heads.

What: With fewer key/value heads than query heads, each is repeated for the query heads that share it.
Here positions, channels or samples are repeated instead: after a view the shapes fit, but a query
head meets some positions several times and others never, holds a channel several times, or meets the
keys of another sample. It is measured: for each key that a query head meets it is traced which
sample, which position and which channels of the projection it holds. Where the split itself is wrong,
that alone is told.

Why: The keys do not stand where the mask and the positions say, or half of each key is a copy of the
other half. All shapes are right, and nothing fails.

Bad:

```python
# build: GroupedAttention(32, 4, 2)
# call: torch.randn(3, 7, 32)
import torch.nn.functional as F
from torch import nn


class GroupedAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, kv_heads * self.size)
        self.to_v = nn.Linear(width, kv_heads * self.size)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q = self.to_q(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        share = self.heads // self.kv_heads
        k = self.to_k(x).repeat_interleave(share, -1).unflatten(-1, (self.heads, self.size))
        v = self.to_v(x).repeat_interleave(share, -1).unflatten(-1, (self.heads, self.size))
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

Good:

```python
# build: GroupedAttention(32, 4, 2)
# call: torch.randn(3, 7, 32)
import torch.nn.functional as F
from torch import nn


class GroupedAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, kv_heads * self.size)
        self.to_v = nn.Linear(width, kv_heads * self.size)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q = self.to_q(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        share = self.heads // self.kv_heads
        k = self.to_k(x).unflatten(-1, (self.kv_heads, self.size)).repeat_interleave(share, 2)
        v = self.to_v(x).unflatten(-1, (self.kv_heads, self.size)).repeat_interleave(share, 2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

References:
- Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
  Checkpoints", section 2.2.
- PyTorch documentation, torch.repeat_interleave and torch.Tensor.repeat.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    LayoutKind,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    known_among,
    site_rule,
)


@site_rule("MHA512", severity=Severity.ERROR, since="0.1")
def gqa_wrong_axis(facts: SiteFacts) -> Iterator[Violation]:
    """Flag key heads that were repeated along positions, channels or samples."""
    found = facts.head_groups.value.repeat
    if found is None:
        return
    split = facts.split_k if found.operand == "k" else facts.split_v
    if any(s.kind is not LayoutKind.RIGHT for s in known_among(facts.split_q, split)):
        return  # heads hold parts of several positions before any is repeated: MHA104 tells that
    name = "key" if found.operand == "k" else "value"
    yield Violation(
        f"the {name} heads are repeated along the {found.axis}, not along the heads: {found.example}",
        at=found.span or facts.info.at("k", "scores"),
        here=f"repeats the {found.axis}",
        why="each query head should meet every position of one key head once",
        help="repeat_interleave(num_heads // num_kv_heads, dim=head axis)",
        evidence=evidence_of(facts.head_groups),
        confirm=f"identity: {found.example}",
    )
