"""One sample of the batch influences the output of another.

What: Samples must not see each other. Here changing one sample's input changes another sample's
output: most often because nn.MultiheadAttention expects (T, B, C) unless batch_first=True is given,
so that attention runs over the samples; also through a view that folds samples and positions
together. Which axis is the batch is told from the rest of the code. Time-first code is right, and
attention over samples can be meant: `--expect over=batch`.

Why: A prediction then depends on what else is in the batch, differs between training and serving,
and one user's data reaches another's output.

Bad:

```python
# build: SequenceClassifier(24, 4, 5)
# call: torch.randn(3, 7, 24)
from torch import nn


class SequenceClassifier(nn.Module):
    def __init__(self, width, heads, classes):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads)
        self.classify = nn.Linear(width, classes)

    def forward(self, x):
        context, _ = self.attention(x, x, x)
        return self.classify(context.mean(dim=1))
```

Good:

```python
# build: SequenceClassifier(24, 4, 5)
# call: torch.randn(3, 7, 24)
from torch import nn


class SequenceClassifier(nn.Module):
    def __init__(self, width, heads, classes):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.classify = nn.Linear(width, classes)

    def forward(self, x):
        context, _ = self.attention(x, x, x)
        return self.classify(context.mean(dim=1))
```

References:
- PyTorch documentation, torch.nn.MultiheadAttention. batch_first defaults to False: (seq, batch,
  feature).
- Hou et al. 2022, "BatchFormer: Learning to Explore Sample Relationships for Robust Representation
  Learning" (on purpose).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Severity,
    Span,
    SubjectFacts,
    Unknown,
    Violation,
    evidence_of,
    settle,
    subject_rule,
)


@subject_rule("MHA601", severity=Severity.ERROR, since="0.1")
def batch_leak(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag samples that influence each other."""
    batch = facts.batch.value
    if not batch.mixes or batch.intended:
        return
    if batch.largest == 0:
        why = "attention runs over the first axis, but no other sample's output was seen to move"
        settle(Unknown(why))
    reason = f" (the batch, because {batch.why_batch})" if batch.why_batch else ", the batch"
    yield Violation(
        f"samples influence each other: information crosses axis {batch.axis}{reason}",
        at=batch.span or _only_site(facts) or facts.span,
        here="mixes the samples of the batch",
        why="a prediction must not depend on what else is in the batch",
        help="nn.MultiheadAttention(..., batch_first=True) for (B, T, C), or x.transpose(0, 1)",
        evidence=evidence_of(facts.batch),
        confirm=f"witness: changing one sample moves the {batch.seen_in.removesuffix('s')} of another"
        f" by {batch.largest:.1g}",
    )


def _only_site(facts: SubjectFacts) -> Span | None:
    return facts.sites[0].info.at("call", "scores") if len(facts.sites) == 1 else None
