"""The attention weights that are returned are not those that were applied.

What: An output that has an axis for the queries and one for the keys, and is computed without the
values, is compared with the weights that meet V, in eval mode. What is made from these weights alone
(their mean over heads, some of their rows) is right. Reported are weights on keys that were hidden
when the weights were applied, weights that were computed once more in another way, weights of
another layer that are returned twice, the transpose under a name that says weights, and raw scores
under such a name. Scores that are called scores or logits are returned on purpose.

Why: Nothing that the model predicts is wrong, so no test fails; but the maps that are plotted,
published or distilled from are of another attention than the one at work.

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
        context = F.scaled_dot_product_attention(q, k, v)
        scores = q @ k.transpose(-2, -1)
        weights = scores.softmax(dim=-1)
        return self.output(context.transpose(1, 2).flatten(2)), weights
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
        context = F.scaled_dot_product_attention(q, k, v)
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        return self.output(context.transpose(1, 2).flatten(2)), weights
```

References:
- PyTorch documentation, torch.nn.MultiheadAttention: attn_output_weights are the applied ones,
  averaged over the heads by default.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Label,
    ReturnedWeights,
    ReturnFault,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA117", severity=Severity.WARNING, since="0.1")
def wrong_returned_weights(facts: SiteFacts) -> Iterator[Violation]:
    """Flag returned weights that differ from the applied ones."""
    found = facts.returned.value
    if found.fault is None:
        return
    labels = (Label(found.applied, "these are applied"),) if found.applied is not None else ()
    yield Violation(
        _message(found, found.fault),
        at=found.span or facts.info.at("softmax"),
        here="not what meets V",
        why="what is plotted, published or distilled from is another attention than the one at work",
        help="return the tensor that is multiplied with the values",
        evidence=evidence_of(facts.returned),
        labels=labels if found.applied != found.span else (),
        confirm=_proof(found, found.fault),
    )


def _message(found: ReturnedWeights, fault: ReturnFault) -> str:
    what = f"{found.name} (output{found.output})" if found.name else f"output{found.output}"
    match fault:
        case ReturnFault.HIDDEN:
            return (
                f"{what} gives up to {found.largest:.2g} to keys that the applied weights hide: it was"
                " taken off before the mask"
            )
        case ReturnFault.OTHER:
            scaled = (
                f" (scores {found.scale:.3g} times as large)" if found.scale is not None else ""
            )
            return (
                f"{what} holds weights that were computed once more, and differ from the applied ones"
                f" by up to {found.largest:.2g}{scaled}"
            )
        case ReturnFault.SCORES:
            return f"{what} is called weights, and holds scores that were not normalised"
        case ReturnFault.TRANSPOSED:
            return f"the rows of {what} are keys: it is the transpose of the applied weights"
        case ReturnFault.REPEATED:
            return f"{what} repeats the weights of another layer, and those of this one are missing"


def _proof(found: ReturnedWeights, fault: ReturnFault) -> str:
    match fault:
        case ReturnFault.HIDDEN:
            return (
                f"witness: a weight that is 0 where it meets V is {found.largest:.3g} in the output"
            )
        case ReturnFault.OTHER:
            return f"witness: largest difference from what meets V, {found.largest:.3g}"
        case ReturnFault.SCORES:
            return f"witness: a row of it sums to 1 but for {found.largest:.3g}, and has negative numbers"
        case ReturnFault.TRANSPOSED:
            return "identity: its last axis follows the queries of the applied weights"
        case ReturnFault.REPEATED:
            return "identity: two of the outputs are one and the same tensor"
