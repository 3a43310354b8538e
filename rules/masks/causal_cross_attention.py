"""A causal mask lies over the keys of another sequence.

What: In cross-attention the keys are the source: encoder states, an image, a document. All of it is
known before the first target token is made, so every query may see every key. Here query i sees keys
up to i only. It is reported where the two sequences differ in length, where each key has seen all of
its sequence already (so that hiding later keys protects nothing), and, as a warning, where the name
of the argument says that it is the source. Caches, prefixes and two sequences that run in step are
left alone.

Why: The first target tokens see almost nothing of the source: a translation cannot begin with a word
that corresponds to the end of the sentence.

Bad:

```python
# build: CrossAttention(24, 4)
# call: torch.randn(3, 5, 24), torch.randn(3, 7, 24)
import torch.nn.functional as F
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory):
        q, k, v = self.query(x), self.key(memory), self.value(memory)
        q, k, v = self.split(q), self.split(k), self.split(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))
```

Good:

```python
# build: CrossAttention(24, 4)
# call: torch.randn(3, 5, 24), torch.randn(3, 7, 24)
import torch.nn.functional as F
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory):
        q, k, v = self.query(x), self.key(memory), self.value(memory)
        q, k, v = self.split(q), self.split(k), self.split(v)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: in encoder-decoder attention every
  position in the decoder attends over all positions in the input sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA311", severity=Severity.ERROR, since="0.1")
def causal_cross_attention(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a causal triangle over the keys of another sequence."""
    found = facts.mask_fit.value.causal_cross
    if found is None:
        return
    yield Violation(
        f"cross-attention is causal: a triangle hides {found.hidden} of the"
        f" {found.t_q * found.t_k} pairs of {found.t_q} queries and {found.t_k} keys, but {found.why}",
        at=found.span or facts.info.at("mask", "scores"),
        here="hides later keys of the other sequence",
        why="the first queries see almost nothing of the source",
        help="no causal mask in cross-attention: only the source's padding is hidden",
        evidence=evidence_of(facts.mask_fit),
        severity=None if found.certain else Severity.WARNING,
        confirm=f"witness: {found.witness}",
    )
