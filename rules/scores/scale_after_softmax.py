"""The scale is applied to the weights, after the softmax.

What: The factor 1/sqrt(head_dim) belongs to the scores. Here the scores enter the softmax unscaled,
and the weights that come out of it are multiplied by the scale.

Why: The softmax saturates as if there were no scale, and one query's weights no longer sum to 1:
every context vector shrinks by the same factor.

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
        scores = q @ k.transpose(-2, -1)
        weights = scores.softmax(dim=-1) / self.head_dim**0.5
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
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. Its reference code scales
  the scores, before the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Label,
    Scale,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA203", severity=Severity.ERROR, since="0.1")
def scale_after_softmax(facts: SiteFacts) -> Iterator[Violation]:
    """Flag weights that are multiplied by the scale which the scores lack."""
    if facts.info.kind in (Kind.POOLING, Kind.LINEAR, Kind.CHANNEL):
        return
    scale = facts.scale.value
    if scale.right or scale.normalised or scale.learned or scale.stated is not None:
        return
    if not math.isclose(scale.value, 1, rel_tol=1e-3) or scale.folded is not None:
        return
    if not _moved_after_softmax(scale):
        return
    head_dim = round(scale.expected**-2)
    weights = [factor.span for factor in scale.factors if factor.on == "weights"]
    at = weights[-1] if weights else facts.info.at("softmax")
    scores = facts.info.spans.get("scores")
    yield Violation(
        f"the weights are multiplied by {scale.after_named} = {scale.after:.3g} after the softmax,"
        f" and the scores are not scaled (head_dim is {head_dim})",
        at=at,
        here=f"scales the weights by {scale.after:.3g}",
        why=f"the softmax sees unscaled scores, and one query's weights sum to {scale.after:.3g}",
        help=f"divide the scores by math.sqrt(head_dim) = {head_dim**0.5:.3g}, not the weights",
        evidence=evidence_of(facts.scale),
        labels=(Label(scores, "not scaled"),)
        if scores and (at is None or scores.line != at.line)
        else (),
        confirm="scale-after",
    )


def _moved_after_softmax(scale: Scale) -> bool:
    """Return whether the weights are multiplied by a width or its root."""
    named = scale.after_named or ""
    return not math.isclose(scale.after, 1, rel_tol=1e-3) and any(
        size in named for size in ("head_dim", "d_model")
    )
