"""A loop over the heads overwrites its own input.

What: Each head projects the same input. In a loop such as `q = layer(q)` the name of the input is
bound to the first head's projection, so that the second head projects that, and so on: head i sees
the input through i + 1 maps.

Why: Only the first head is what it should be. Later heads depend on the weights of all earlier
ones.

Bad:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.width = width
        self.queries = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
        self.keys = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
        self.output = nn.Linear(heads * width, width)

    def forward(self, x):
        q, k, v = x, x, x
        contexts = []
        for query, key, value in zip(self.queries, self.keys, self.values, strict=True):
            q, k, v = query(q), key(k), value(v)
            scores = q @ k.transpose(-2, -1) / self.width**0.5
            contexts.append(scores.softmax(dim=-1) @ v)
        return self.output(torch.cat(contexts, dim=-1))
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
        self.width = width
        self.queries = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
        self.keys = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
        self.output = nn.Linear(heads * width, width)

    def forward(self, x):
        contexts = []
        for query, key, value in zip(self.queries, self.keys, self.values, strict=True):
            q, k, v = query(x), key(x), value(x)
            scores = q @ k.transpose(-2, -1) / self.width**0.5
            contexts.append(scores.softmax(dim=-1) @ v)
        return self.output(torch.cat(contexts, dim=-1))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O. head_i = Attention(Q W_Q^i, K W_K^i, V
  W_V^i).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Label, Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA110", severity=Severity.ERROR, since="0.1")
def overwritten_input(facts: SiteFacts) -> Iterator[Violation]:
    """Flag operands of one head that are projected from another head's."""
    operands = facts.overwritten.value
    if not operands:
        return
    place = facts.info.at("overwrite", operands[0])
    verb = "is" if len(operands) == 1 else "are"
    others = [(facts.info.spans.get(operand), operand) for operand in operands[1:]]
    yield Violation(
        f"the loop over the heads overwrites its own input: the {_listed(operands)} of one head"
        f" {verb} projected from {'that' if len(operands) == 1 else 'those'} of the head before",
        at=place,
        here="reads what the head before made",
        why="every head must project the same input; here head i sees it through i + 1 maps",
        help=f"bind the projection to a new name: {operands[0]}_i = layer(x)",
        evidence=evidence_of(facts.overwritten),
        labels=tuple(
            Label(span, f"the same for {operand}")
            for span, operand in others
            if span and place and span.line != place.line
        ),
        confirm=f"identity: the {operands[0]} of a later head is computed from an earlier head's",
    )


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
