"""No softmax stands between the scores and the values.

What: Scaled scores that are multiplied with V as they are: an error, because the scale has no other
purpose than to suit a softmax. Unscaled products without a normaliser, and sigmoid, ReLU or another
function in the place of the softmax, exist as designs and are warnings; `--expect normaliser=any`
says that one is meant.

Why: Without a softmax the weights are negative as well as positive, do not sum to 1, and grow with
the length; the layer is a product of three linear maps.

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
        context = scores @ v
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
        context = scores.softmax(dim=-1) @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1 (Scaled Dot-Product Attention),
  equation 1 and footnote 4.
- Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention".
- Wortsman et al. 2023, "Replacing softmax with ReLU in Vision Transformers".
- Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with Linear
  Attention".
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Known,
    Normaliser,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA205", severity=Severity.ERROR, since="0.1")
def missing_softmax(facts: SiteFacts) -> Iterator[Violation]:
    """Flag scores that reach V without a softmax."""
    if facts.info.kind in (Kind.LINEAR, Kind.CHANNEL):
        return
    normaliser = facts.normaliser.value
    right = isinstance(facts.scale, Known) and facts.scale.value.right
    match normaliser.function:
        case "softmax" | "simplex":
            return
        case _ if normaliser.averaged:
            return  # each key counts for 1/T_k, which bounds the sum as well
        case "none" if right:
            severity = Severity.ERROR
            message = "the scaled scores are multiplied with V without a softmax"
        case "none":
            severity = Severity.WARNING
            message = "the scores are multiplied with V without a softmax; some designs mean to"
        case function:
            severity = Severity.WARNING
            message = f"{_NAMES.get(function, function)} stands in the place of the softmax"
            message += "; some designs mean to"
    yield Violation(
        message,
        at=facts.info.at("softmax", "value", "scores"),
        here="no softmax before this" if normaliser.function == "none" else "not a softmax",
        why=_why(normaliser),
        help="weights = torch.softmax(scores, dim=-1)",
        evidence=evidence_of(facts.normaliser),
        severity=severity,
        confirm="normaliser",
    )


_NAMES = {"relu": "ReLU", "sum": "division by the plain sum", "other": "another function"}


def _why(normaliser: Normaliser) -> str:
    rule = "one query's weights should be positive and sum to 1"
    if normaliser.row_sums is None:
        return rule
    lowest, highest = normaliser.row_sums
    return f"{rule}; here they sum to {lowest:.3g} ... {highest:.3g}"
