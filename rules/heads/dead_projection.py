"""All weights of a projection start at one value, and it cannot learn from there.

What: Looked at is the weight that the constructor leaves. Queries and keys multiply each other, and so
do values and W_O: where both of a pair are zero, neither gets a gradient, whatever all else is, as a
backward pass with all other parameters drawn at random shows. A weight whose entries are all one
other number makes all of its channels alike. A zero W_O, the B of LoRA, a gate at zero, or zero
queries beside keys that are not: all of these get a gradient, are known designs and not reported.

Why: Zero queries meet zero keys: every query attends to all keys alike, and stays so however long the
model is trained. The loss still falls, since all other parameters learn.

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
        for layer in (self.query, self.key):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

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
        for layer in (self.query, self.key):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

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
- Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks".
- Hu et al. 2021, "LoRA": one of the two factors is zero at first, not both.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Dead, Severity, SubjectFacts, Violation, evidence_of, subject_rule


@subject_rule("MHA114", severity=Severity.WARNING, since="0.1")
def dead_projection(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag weights that begin where there is no gradient, or with all channels alike."""
    for found in facts.learning.value.dead:
        yield _saddle(facts, found) if found.value == 0 else _constant(facts, found)


def _saddle(facts: SubjectFacts, found: Dead) -> Violation:
    sides = " and ".join(found.together)
    both = f"the weights of {sides} are" if len(found.together) > 1 else f"the weight of {sides} is"
    return Violation(
        f"{both} zero at first ({found.name}), where no gradient reaches"
        f" {'either' if len(found.together) > 1 else 'it'}",
        at=found.span or facts.span,
        here="zero, and stays so",
        why="each is multiplied by the other: with both at zero neither can leave it",
        help="start one of them at random, as nn.Linear does by itself",
        evidence=evidence_of(facts.learning),
        confirm="witness: with all other parameters drawn at random, the gradient of"
        f" {found.name} is 0 throughout",
    )


def _constant(facts: SubjectFacts, found: Dead) -> Violation:
    sides = ", ".join(found.together)
    return Violation(
        f"all entries of {found.name} ({sides}) are {found.value:g} at first: its channels are all"
        " the same",
        at=found.span or facts.span,
        here=f"{found.value:g} throughout",
        why="equal channels of one head compute the same and get the same gradient",
        help="nn.init.xavier_uniform_(weight), or leave it as nn.Linear makes it",
        evidence=evidence_of(facts.learning),
        confirm=f"identity: the smallest and the largest entry of {found.name} are {found.value:g}",
    )
