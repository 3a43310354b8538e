"""Dropout stays on in eval mode.

What: F.dropout acts in every mode unless training=self.training is passed, and the dropout_p of
F.scaled_dot_product_attention acts always. The recorded call was made in eval mode, and a dropout
with a rate above 0 still dropped.

Why: Predictions are random and worse than they need be: the same input gives different outputs, and
validation measures a model that nobody deploys.

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
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = F.dropout(scores.softmax(dim=-1), 0.1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
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
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = F.dropout(scores.softmax(dim=-1), 0.1, self.training)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.dropout: training defaults to True.
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. It applies dropout_p in
  every mode: pass 0.0 outside training.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Known, Severity, SubjectFacts, Violation, evidence_of, subject_rule


@subject_rule("MHA401", severity=Severity.ERROR, since="0.1")
def dropout_in_eval(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag each dropout that acted in eval mode."""
    active = [use for use in facts.dropouts.value if use.active_in_eval and use.rate > 0]
    for use in dict.fromkeys(active):
        yield Violation(
            f"dropout with rate {use.rate:g} on the {use.place} stays on in eval mode",
            at=use.span or facts.span,
            here="drops in eval mode too",
            why="the same input gives different outputs, and predictions lose accuracy",
            help="F.dropout(x, p, self.training), or dropout_p=p if self.training else 0.0",
            evidence=(*evidence_of(facts.dropouts), *evidence_of(facts.deterministic)),
            confirm=_proof(facts, use.rate),
        )


def _proof(facts: SubjectFacts, rate: float) -> str:
    if isinstance(facts.deterministic, Known) and not facts.deterministic.value:
        return "witness: two calls in eval mode with the same input give different outputs"
    return f"identity: the call recorded in eval mode applies dropout with rate {rate:g}"
