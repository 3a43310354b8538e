"""Scores are soft-capped after they were masked, so that hidden keys come back.

What: A bounded map (cap * tanh(scores / cap), a clamp) acts on scores that a mask has already filled
with minus infinity or a large negative number. The fill becomes -cap. The cap must come first.

Why: Behind the cap a hidden score is no lower than the lowest that a visible one can have. Where
the visible scores of a row are low, the hidden keys take part; with a small cap they always do.

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
        scores = scores.masked_fill(~near, float("-inf"))
        scores = 20 * torch.tanh(scores / 20)
        weights = scores.softmax(dim=-1)
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
        scores = 20 * torch.tanh(scores / 20)
        scores = scores.masked_fill(~near, float("-inf"))
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2 (Logit
  soft-capping).
- Hugging Face transformers, modeling_gemma2.eager_attention_forward. It caps first and adds the mask
  afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Label, Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA313", severity=Severity.ERROR, since="0.1")
def softcap_after_mask(facts: SiteFacts) -> Iterator[Violation]:
    """Flag bounded maps between a mask and the softmax."""
    for squashed in facts.masking.value.squashed:
        masked = squashed.masked_at
        apart = masked is not None and (squashed.span is None or masked.line != squashed.span.line)
        yield Violation(
            f"scores that the mask set to {squashed.fill:g} are squashed to {squashed.level:.3g}"
            " before the softmax: hidden keys come back",
            at=squashed.span or facts.info.at("mask", "softmax"),
            here=f"{squashed.fill:g} becomes {squashed.level:.3g}",
            why="a hidden score is then no lower than a visible one may be, and at the recorded"
            f" scores a hidden key keeps {squashed.kept:.1g} of the largest visible weight",
            help="cap the scores first, and mask them afterwards",
            evidence=evidence_of(facts.masking),
            labels=(Label(masked, "masked here"),) if apart and masked is not None else (),
            confirm=f"witness: with fills twice as low the softmax still gets {squashed.level:.3g}",
        )
