"""The value that a weight multiplies comes from another position than its key.

What: Keys and values are made from the same positions of one tensor, in different orders: one of
them was flipped, rolled, sorted or joined the other way round, and the other was not. It is measured
from which position each key and each value comes.

Why: A weight says how much a query wants of the position behind one key. With the values in another
order it fetches the content of some other position than the one whose key fits.

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
        v = self.split(self.value(x.flip(1)))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        context = scores.softmax(dim=-1) @ v
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
        k = self.split(self.key(x.flip(1)))
        v = self.split(self.value(x.flip(1)))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        context = scores.softmax(dim=-1) @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2 (Attention): the weight of each value
  is computed from its corresponding key.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA118", severity=Severity.ERROR, since="0.1")
def mispaired_values(facts: SiteFacts) -> Iterator[Violation]:
    """Flag values in another order than their keys."""
    found = facts.pairing.value
    if found.paired:
        return
    name, other = ("values", "keys") if found.moved == "v" else ("keys", "values")
    shown = f"key {found.slot} is made from position {found.key}, its value from {found.value}"
    yield Violation(
        f"the {name} stand in another order than the {other}: {shown}",
        at=found.span or facts.info.at(found.moved, "value"),
        here=f"changes the order of the {name} alone",
        why="the weight of a key then fetches what stands at another position",
        help=f"bring the {other} into the same order, or leave the {name} as they are",
        evidence=evidence_of(facts.pairing),
        # All displaced by one step: such a value may be meant to be the key's successor.
        severity=Severity.ERROR if found.shift is None else Severity.WARNING,
        confirm=f"identity: {shown}",
    )
