"""The merge of the heads mixes positions with heads.

What: The context (B, h, T, v_dim) must be transposed to (B, T, h, v_dim) before its last two axes
are joined. A reshape without that transpose, or with another permutation, fills one output position
with the values of several positions.

Why: Each output position gets what other positions attended to, later ones too: a causal model
leaks, and what W_O mixes is not the heads of one position.

Bad:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.reshape(x.shape))
```

Good:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.
- PyTorch documentation, torch.Tensor.view and torch.Tensor.transpose.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    LayoutKind,
    Severity,
    SiteFacts,
    Violation,
    known_among,
    site_rule,
)


@site_rule("MHA105", severity=Severity.ERROR, since="0.1")
def scrambled_head_merge(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a merge that fills one position with the context of several."""
    merge = facts.merge.value
    if merge.kind in (LayoutKind.RIGHT, LayoutKind.OVER_BATCH):
        return
    place = merge.span or facts.info.at("merge", "value")
    for split in known_among(facts.split_q, facts.split_k, facts.split_v):
        if split.kind is LayoutKind.OVER_HEADS:
            return  # MHA602: the merge only follows it
        scrambled = split.kind is not LayoutKind.RIGHT
        if scrambled and place and split.span and split.span.line == place.line:
            return  # one line, one fault
    mixed = "samples" if merge.kind is LayoutKind.MIXED_SAMPLES else "positions"
    yield Violation(
        f"the merge of the heads mixes {mixed} with heads",
        at=place,
        here=f"one output position holds the context of several {mixed}",
        why=f"each output position then holds what other {mixed} attended to",
        help="context.transpose(1, 2).reshape(B, T, num_heads * v_dim)",
        evidence=(merge.example,) if merge.example else (),
        confirm="merge",
    )
