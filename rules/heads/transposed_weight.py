"""A raw weight is contracted over its output axis instead of its input axis.

What: A weight of shape (out, in) must be contracted over `in` with the input's channels. Here it is
contracted over `out`. While both are equal the shapes fit, and no measurement at that size can tell
the two apart; built with different widths, the same call fails.

Why: The projection is the transpose of what its initialisation and every checkpoint assume, and the
first configuration with unequal widths breaks.

Bad:

```python
# build: RawWeightAttention(24, 24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class RawWeightAttention(nn.Module):
    def __init__(self, in_width, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Parameter(torch.randn(width, in_width) * in_width**-0.5)
        self.key = nn.Parameter(torch.randn(width, in_width) * in_width**-0.5)
        self.value = nn.Parameter(torch.randn(width, in_width) * in_width**-0.5)
        self.output = nn.Linear(width, width)

    def split(self, x, weight):
        projected = x @ weight
        return projected.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(x, self.query)
        k = self.split(x, self.key)
        v = self.split(x, self.value)
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

Good:

```python
# build: RawWeightAttention(24, 24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class RawWeightAttention(nn.Module):
    def __init__(self, in_width, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Parameter(torch.randn(width, in_width) * in_width**-0.5)
        self.key = nn.Parameter(torch.randn(width, in_width) * in_width**-0.5)
        self.value = nn.Parameter(torch.randn(width, in_width) * in_width**-0.5)
        self.output = nn.Linear(width, width)

    def split(self, x, weight):
        projected = x @ weight.T
        return projected.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(x, self.query)
        k = self.split(x, self.key)
        v = self.split(x, self.value)
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.Linear: y = x A^T + b, weight of shape (out_features,
  in_features).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, Span, SubjectFacts, Violation, evidence_of, subject_rule


@subject_rule("MHA113", severity=Severity.ERROR, since="0.1")
def transposed_weight(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag a weight that fits only while it is square."""
    told: set[Span | None] = set()
    for failure in facts.size_failures.value:
        if failure.kind != "weight-orientation" or failure.span in told:
            continue
        told.add(failure.span)
        yield Violation(
            f"a weight is contracted over the wrong axis: with {failure.change},"
            f" {failure.detail or failure.error}",
            at=failure.span or facts.span,
            here="fits only while the weight is square",
            why="the map is the transpose of what its shape says, unseen while widths are equal",
            help="contract its input axis: x @ weight.T for (out, in), x @ weight for (in, out)",
            evidence=(*evidence_of(facts.size_failures), f"with {failure.change}: {failure.error}"),
            confirm=f"witness: with {failure.change} the same call raises {failure.error}",
        )
