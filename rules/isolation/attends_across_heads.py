"""Attention runs over the heads of one position instead of over positions.

What: q, k and v reach the score product as (B, T, h, head_dim): the axis before the last is the
heads. Each position then attends to its own heads, and no position sees another.
F.scaled_dot_product_attention wants (B, h, T, head_dim).

Why: Nothing fails, the output has the right shape, and the layer moves no information along the
sequence. A mask of (T, T) would not even fit, but often none is passed.

Bad:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim))

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        context = F.scaled_dot_product_attention(q, k, v)
        return self.output(context.flatten(2))
```

Good:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn
from torch.nn import functional as F


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
        context = F.scaled_dot_product_attention(q, k, v)
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. query has the shape (N,
  ..., L, E): L, the length, stands before the last axis.
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Label,
    Layout,
    LayoutKind,
    Severity,
    SiteFacts,
    Span,
    Violation,
    known_among,
    settle,
    site_rule,
)


@site_rule("MHA602", severity=Severity.ERROR, since="0.1")
def attends_across_heads(facts: SiteFacts) -> Iterator[Violation]:
    """Flag operands whose rows are the heads of one position."""
    if facts.info.kind is Kind.CHANNEL:
        return
    splits = (facts.split_q, facts.split_k, facts.split_v)
    found = [s for s in known_among(*splits) if s.kind is LayoutKind.OVER_HEADS]
    if found:
        places = {split.operand: _place(facts, split) for split in found}
        first = places[found[0].operand]
        yield Violation(
            "attention runs over the heads of each position, not over positions:"
            f" the rows of {_listed(tuple(places))} are heads",
            at=first,
            here="the axis before the last holds heads, not positions",
            why="no position sees another: the layer moves nothing along the sequence",
            help="transpose (B, T, h, head_dim) to (B, h, T, head_dim): x.transpose(1, 2)",
            evidence=tuple(dict.fromkeys(split.example for split in found if split.example)),
            labels=tuple(
                Label(span, f"the same for {operand}")
                for operand, span in places.items()
                if span and first and span.line != first.line
            ),
            confirm=f"split:{found[0].operand}",
        )
    settle(*splits)


def _place(facts: SiteFacts, split: Layout) -> Span | None:
    return split.span or facts.info.at(f"split_{split.operand}", split.operand, "scores")


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
