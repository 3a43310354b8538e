"""The weights are normalised twice.

What: A softmax is applied to weights that already are the output of one. A second normaliser that
only restores the sums, after weights were masked or all but the largest were dropped, is fine.

Why: The second softmax sees values between 0 and 1, so that no weight can exceed another by more
than a factor of e: attention is close to uniform whatever the scores are, and masked keys come
back.

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
        weights = weights.softmax(dim=-1)
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1 (Scaled Dot-Product Attention),
  equation 1 and footnote 4.
- PyTorch documentation, torch.nn.functional.softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA206", severity=Severity.ERROR, since="0.1")
def repeated_softmax(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a softmax of softmax weights."""
    normaliser = facts.normaliser.value
    if normaliser.times < 2 or normaliser.renormalised:
        return
    times = "twice" if normaliser.times == 2 else f"{normaliser.times} times in a row"
    yield Violation(
        f"the weights are normalised {times}",
        at=facts.info.at("repeated", "softmax"),
        here=f"normalised {times}",
        why="the second softmax sees values in 0 ... 1: no weight can exceed another by more than"
        f" a factor of {math.e:.3g}, and masked keys come back",
        help="apply the softmax once, to the scores",
        evidence=evidence_of(facts.normaliser),
        confirm="repeated-softmax",
    )
