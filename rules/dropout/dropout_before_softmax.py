"""Dropout is applied to the scores instead of the weights.

What: Attention dropout acts on the weights, after the softmax. Here it acts on the scores: a
dropped score is 0, not minus infinity, and the others grow by 1/(1 - p). DropKey drops scores on
purpose, by adding minus infinity to them, which is no dropout layer and not reported.

Why: A score of 0 still gets a weight, often a larger one than before, and the softmax of the
rescaled scores is sharper in training than in evaluation. Behind a mask it is worse: a dropped
score of a hidden key is 0 * -inf = NaN in training, and with a finite fill the key is seen again.

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
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = self.dropout(scores).softmax(dim=-1)
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
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = self.dropout(scores.softmax(dim=-1))
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. Its reference code drops
  after the softmax.
- Li et al. 2023, "DropKey for Vision Transformer".
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA402", severity=Severity.WARNING, since="0.1")
def dropout_before_softmax(facts: SiteFacts) -> Iterator[Violation]:
    """Flag each dropout on the scores."""
    for use in facts.dropouts.value:
        if use.place != "scores":
            continue
        yield Violation(
            f"dropout with rate {use.rate:g} is applied to the scores, before the softmax",
            at=use.span or facts.info.at("scores", "softmax"),
            here="drops scores, not weights",
            why="a dropped score is 0, which still gets a weight (NaN where it was -inf), and the"
            " others are scaled up",
            help="weights = dropout(torch.softmax(scores, dim=-1))",
            evidence=evidence_of(facts.dropouts),
            confirm="identity: the dropout's result is what the softmax normalises",
        )
