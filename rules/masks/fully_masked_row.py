"""A query has no key left, and its result is used all the same.

What: In the recorded call, the masks hide every key of some query. With minus infinity its weights
are NaN; with a finite fill the query attends to all hidden keys alike. Queries whose own position
is hidden as well (padding) harm nobody unless they are NaN. A softmax that gives 0 there, weights
that are set to 0 afterwards, and results that are thrown away are fine.

Why: NaN spreads to the whole sample in the next layer, and to all weights in the first step of
training. A query that attends to what is hidden reads padding, or the future, and nothing tells.

Bad:

```python
# build: RetrievalAttention(24, 4)
# call: torch.randn(3, 4, 24), torch.randn(3, 5, 24), torch.tensor([5, 2, 0])
import torch
from torch import nn


class RetrievalAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(width, width)
        self.found = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, passages, lengths):
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.found(passages).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        hidden = torch.arange(k.shape[2]) >= lengths[:, None, None, None]
        weights = scores.masked_fill(hidden, -1e9).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))
```

Good:

```python
# build: RetrievalAttention(24, 4)
# call: torch.randn(3, 4, 24), torch.randn(3, 5, 24), torch.tensor([5, 2, 0])
import torch
from torch import nn


class RetrievalAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(width, width)
        self.found = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, passages, lengths):
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.found(passages).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        hidden = torch.arange(k.shape[2]) >= lengths[:, None, None, None]
        weights = scores.masked_fill(hidden, -1e9).softmax(dim=-1)
        weights = weights.masked_fill(hidden, 0.0)
        return self.output((weights @ v).transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention.
- PyTorch issue 41508: NaN where a key padding mask hides a whole row.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    EmptyRows,
    Known,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA306", severity=Severity.WARNING, since="0.1")
def fully_masked_row(facts: SiteFacts) -> Iterator[Violation]:
    """Flag queries that no key is left for, unless the mask's numbers overflow."""
    masking = facts.masking.value
    empty = masking.empty
    if empty is None or (masking.overflow is not None and masking.overflow.nan_rows):
        return
    fit = facts.mask_fit
    if isinstance(fit, Known) and (fit.value.inverted or fit.value.misplaced):
        return  # the mask hides the wrong pairs
    yield Violation(
        f"{empty.rows} of {empty.of} queries (the first: {empty.example}) have no key left, and"
        f" {_result(empty)}",
        at=empty.span or facts.info.at("mask", "softmax"),
        here="hides every key of a query",
        why="a softmax over nothing has no answer: minus infinity throughout gives NaN, a finite fill"
        " equal weights for all hidden keys",
        help="leave such queries one key, or set their weights to 0 behind the softmax:"
        " weights.masked_fill(hidden, 0.0)",
        evidence=evidence_of(facts.masking),
        confirm=_proof(empty),
    )


def _result(empty: EmptyRows) -> str:
    if empty.nan:
        return "their weights are NaN, which reaches the output"
    return "attend to all the keys that the mask hides"


def _proof(empty: EmptyRows) -> str:
    if empty.nan:
        return "identity: the recorded output holds NaN"
    return "witness: the output changes when the weights of these queries are set to 0"
