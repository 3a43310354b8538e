"""In training mode the dropout that acts on the weights is not the one that was configured.

What: The module is built once more with another rate for each dropout argument, and one call is
recorded in training mode. So it shows which argument sets what is dropped. Reported are a rate that
acts nowhere although nothing else drops, or although its name says that it is for attention; weights
that are dropped at a fixed rate, at the rate of another argument, or twice in a row; and a rate that
acts as the probability to keep. One argument that serves the output alone is a design and not reported,
and a dropout layer that is never called is MHA109.

Why: Evaluation is right, so no test fails: the model is just regularised otherwise than its
configuration says, too much, too little or not at all, and an experiment that varies the rate
compares equal models.

Bad:

```python
# build: MultiHeadAttention(24, 4, attn_dropout=0.1)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads, attn_dropout):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.attn_dropout = attn_dropout

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = F.dropout(scores.softmax(dim=-1), training=self.training)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

Good:

```python
# build: MultiHeadAttention(24, 4, attn_dropout=0.1)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads, attn_dropout):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.attn_dropout = attn_dropout

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = F.dropout(scores.softmax(dim=-1), self.attn_dropout, self.training)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.dropout: p, the probability to drop, defaults to 0.5.
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention: dropout_p defaults to 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Label,
    RateFault,
    Severity,
    SubjectFacts,
    TrainingDropout,
    Violation,
    evidence_of,
    subject_rule,
)


@subject_rule("MHA403", severity=Severity.WARNING, since="0.1")
def wrong_dropout_rate(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag each dropout rate that acts otherwise than configured."""
    for found in facts.training_dropout.value:
        labels = (Label(found.kept_at, _kept(found)),) if found.kept_at is not None else ()
        yield Violation(
            _message(found),
            at=found.span or facts.span,
            here=_here(found),
            why="the model is regularised otherwise than its configuration says, in training only",
            help=_help(found),
            evidence=evidence_of(facts.training_dropout),
            labels=labels if labels and labels[0].span != found.span else (),
            confirm=_proof(found),
        )


def _message(found: TrainingDropout) -> str:
    name, rate = found.argument, found.configured
    acting = 0.0 if found.acting is None else found.acting
    named = f" ({name} is taken for the rate of the weights by its name)" if found.named else ""
    match found.fault:
        case RateFault.TWICE:
            return f"the weights are dropped twice in training: {acting:.3g} of them in place of {rate:g}"
        case RateFault.KEPT:
            return f"with {name}={found.tried:g}, elements are dropped at a rate of {acting:g}"
        case RateFault.FIXED:
            return (
                f"the weights are dropped at a rate of {acting:g} whatever {name} is, here"
                f" {rate:g}{named}"
            )
        case RateFault.OTHER:
            return f"the weights are dropped at {found.other}, and not at {name}{named}"
        case RateFault.NEVER:
            return (
                f"{name}={rate:g} is configured, and nothing drops at that rate in training{named}"
            )


def _here(found: TrainingDropout) -> str:
    match found.fault:
        case RateFault.TWICE:
            return "drops once more"
        case RateFault.NEVER:
            return "no dropout acts on these"
        case RateFault.OTHER:
            return f"drops at {found.other}"
        case RateFault.KEPT | RateFault.FIXED:
            return f"drops at {found.acting or 0:g}"


def _kept(found: TrainingDropout) -> str:
    return "dropped here already" if found.fault is RateFault.TWICE else "taken up here"


def _help(found: TrainingDropout) -> str:
    match found.fault:
        case RateFault.TWICE:
            return "drop the weights once"
        case RateFault.KEPT:
            return "nn.Dropout and F.dropout take the probability to drop, not to keep"
        case RateFault.NEVER | RateFault.FIXED | RateFault.OTHER:
            return (
                "F.dropout(weights, self.p, self.training), or dropout_p=self.p if self.training"
                " else 0.0"
            )


def _proof(found: TrainingDropout) -> str:
    match found.fault:
        case RateFault.TWICE:
            return "identity: what the second dropout reads was dropped by the first"
        case RateFault.NEVER:
            return f"witness: a call in training mode is the same with {found.argument} at another rate"
        case RateFault.KEPT | RateFault.FIXED | RateFault.OTHER:
            return (
                f"witness: built with {found.argument}={found.tried:g} and recorded in training mode,"
                f" the dropout has rate {found.acting or 0:g}"
            )
