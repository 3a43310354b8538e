"""The output differs from the reference attention, and no known variant explains it.

What: An independent float64 reference computes attention from the same projections and compares
stage by stage: operands, scores, weights, context, output. Here it departs, and none of the
variants that the reference knows (other scales, axes, masks, layouts, roles) reproduces what the
code does. The message says where the two part first. No rule can name a fault, so this is a
warning: a design that the reference does not know looks the same.

Why: Either there is a fault of a kind without a rule, or the code means something other than scaled
dot-product attention, which should then be written down.

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
        weights = scores.softmax(dim=-1).square()
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, SubjectFacts, Violation, subject_rule


@subject_rule("MHA901", severity=Severity.WARNING, since="0.1")
def reference_mismatch(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag each mismatch that the cross-check could not explain."""
    for sentence in facts.crosscheck.value:
        site = _site_of(sentence, facts.sites)
        yield Violation(
            f"differs from the reference attention, and no known variant explains it: {sentence}",
            at=site.info.at("scores", "value") if site else facts.span,
            here="departs from the reference",
            why="a fault without a rule of its own, or a design that the reference does not know",
            help="compare this stage with softmax(q k^T / sqrt(head_dim)) v, head by head",
            evidence=(sentence,),
            confirm=f"witness: {sentence}",
        )


def _site_of(sentence: str, sites: tuple[SiteFacts, ...]) -> SiteFacts | None:
    """Return the site whose id the sentence begins with, or the only one."""
    named = [
        site for site in sites if sentence.startswith((f"{site.info.id}:", f"{site.info.id} "))
    ]
    return named[0] if named else sites[0] if len(sites) == 1 else None
