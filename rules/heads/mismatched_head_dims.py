"""Head widths contradict each other, which shows as soon as two sizes differ.

What: The concatenation of the heads is num_heads * v_dim wide, whatever the input's width is, and q
and k share one head_dim. Here a merge or a split takes its size from somewhere else (the input's
width, a constant), so that the code works only while two independent arguments happen to be equal.
It was built again with them changed, and the call failed. Code that fails at every size is
reported as well where widths are the reason, or where k was not transposed, so that the channels of
q meet the positions of k.

Why: The constructor promises sizes that the forward pass cannot handle; the error appears far away,
at the first configuration with unequal widths.

Bad:

```python
# build: WideningAttention(24, 24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class WideningAttention(nn.Module):
    def __init__(self, in_width, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(in_width, width)
        self.key = nn.Linear(in_width, width)
        self.value = nn.Linear(in_width, width)
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
        return self.output(context.transpose(1, 2).reshape(x.shape))
```

Good:

```python
# build: WideningAttention(24, 24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class WideningAttention(nn.Module):
    def __init__(self, in_width, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(in_width, width)
        self.key = nn.Linear(in_width, width)
        self.value = nn.Linear(in_width, width)
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O. W_O has the shape (h d_v, d_model).
- Bhojanapalli et al. 2020, "Low-Rank Bottleneck in Multi-head Attention Models": head widths that
  do not depend on d_model / h.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Severity,
    SizeFailure,
    Span,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)


@subject_rule("MHA103", severity=Severity.ERROR, since="0.1")
def mismatched_head_dims(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag a split or merge that fails once independent sizes differ."""
    told: set[tuple[str, Span | None]] = set()
    for failure in facts.size_failures.value:
        match failure.kind:
            case "merge-width":
                what, help_ = "heads are merged to a width that is not theirs", _MERGE_HELP
            case "head-width":
                what, help_ = "heads are split by a size that contradicts the others", _SPLIT_HELP
            case _:
                continue
        if (failure.kind, failure.span) in told:
            continue
        told.add((failure.kind, failure.span))
        yield _violation(facts, failure, what, help_)


_MERGE_HELP = "take the width from the heads: context.transpose(1, 2).flatten(2)"
_SPLIT_HELP = "take both sizes from one place: x.unflatten(-1, (num_heads, head_dim))"


def _violation(facts: SubjectFacts, failure: SizeFailure, what: str, help_: str) -> Violation:
    return Violation(
        f"{what}: with {failure.change}, {failure.detail or failure.error}",
        at=failure.span or facts.span,
        here="works only while the widths are equal",
        why="arguments that may differ must not be taken for one another",
        help=help_,
        evidence=(*evidence_of(facts.size_failures), f"with {failure.change}: {failure.error}"),
        confirm=f"witness: with {failure.change} the same call raises {failure.error}",
    )
