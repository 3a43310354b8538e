"""An encoder, or another module that should see in both directions, hides later positions.

What: A causal triangle hides from each position what comes after it. A decoder needs that; an encoder
that classifies or embeds a whole text or image does not. It is reported with `--expect bidirectional`,
where the output reads the first position alone (which sees only itself under a triangle), and where
the class is an encoder by its name or says that it sees both sides, while nothing in it speaks of
causality. `--expect causal` says that the triangle is meant.

Why: The first positions are encoded without their context: half of what could be known is thrown
away.

Bad:

```python
# build: SentenceEncoder(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SentenceEncoder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.scale
        seen = torch.tril(torch.ones(t, t))
        scores = scores.masked_fill(seen == 0, float("-inf"))
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c)).mean(1)
```

Good:

```python
# build: SentenceEncoder(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SentenceEncoder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.scale
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c)).mean(1)
```

References:
- Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
  Understanding", section 1.
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: each position in the encoder can
  attend to all positions in the previous layer of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA314", severity=Severity.WARNING, since="0.1")
def unwanted_causal_mask(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a causal triangle in a module that should see in both directions."""
    found = facts.mask_fit.value.unwanted
    if found is None:
        return
    judged = "" if found.certain else " (judged from its names and text)"
    yield Violation(
        f"later positions are hidden, {found.hidden} of {found.t_q * found.t_k} pairs, though both"
        f" directions are due{judged}: {found.why}",
        at=found.span or facts.info.at("mask", "scores"),
        here="hides later positions",
        why="the first positions are encoded without what follows them",
        help="no causal mask here; --expect causal if it is meant",
        evidence=evidence_of(facts.mask_fit),
        confirm=f"witness: {found.witness}",
    )
