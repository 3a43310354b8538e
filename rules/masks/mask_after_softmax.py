"""Weights are masked after the softmax and not normalised again.

What: A mask takes weights away behind the softmax: it sets them to 0, or to minus infinity, or
multiplies them by 0. What is left of a query's weights no longer sums to 1. Right are a mask on
the scores, a mask on both, weights that are divided by their new sum, and a mask that takes whole
queries away.

Why: The softmax has shared its weight out among all keys, the hidden ones too. So the hidden keys
still act on the result: how much of the visible values is left depends on them, and a query with
few visible keys gets close to nothing. Minus infinity in the place of a weight makes the result
infinite or NaN.

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
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places[None, :]).abs() < 3
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1).masked_fill(~near, 0.0)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
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
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places[None, :]).abs() < 3
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.masked_fill(~near, float("-inf")).softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3 (Applications of Attention in our
  Model): illegal connections are masked out "(setting to minus infinity)" in the input of the
  softmax.
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. Its reference code masks
  before the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mha_lint.rule_api import (
    Label,
    LateMask,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA301", severity=Severity.ERROR, since="0.1")
def mask_after_softmax(facts: SiteFacts) -> Iterator[Violation]:
    """Flag masks that hide weights which are not normalised again."""
    for late in facts.masking.value.late:
        softmax = facts.info.spans.get("softmax")
        apart = softmax is not None and (late.span is None or softmax.line != late.span.line)
        yield Violation(
            f"the mask sets weights to {late.fill:g} after the softmax, and {_left(late)}",
            at=late.span or softmax,
            here=f"takes away {late.pairs} of {late.of} weights",
            why="the softmax has already given the hidden keys a part of each query's weight, and so"
            " they still act on the result",
            help='mask the scores instead: scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)',
            evidence=evidence_of(facts.masking),
            labels=(Label(softmax, "normalises over hidden keys too"),)
            if apart and softmax is not None
            else (),
            confirm=_proof(late),
        )


def _left(late: LateMask) -> str:
    low, high = late.sums
    if not math.isfinite(low) or not math.isfinite(high) or abs(low) > 10 or abs(high) > 10:
        return "no weighted mean is left"
    same = f"{low:.2g}" == f"{high:.2g}"
    sums = f"{low:.2g}" if same else f"{low:.2g} ... {high:.2g}"
    return f"what is left of a query's weights sums to {sums}, not to {late.before:.2g}"


def _proof(late: LateMask) -> str:
    low, high = late.sums
    return (
        f"witness: with the mask the weights of the queries concerned sum to {low:.3g} ..."
        f" {high:.3g}, without it to {late.before:.3g}"
    )
