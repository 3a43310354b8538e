"""No gradient reaches a projection in training mode.

What: The module runs once in training mode with a backward pass of a random projection of all its
outputs. The result of some of its q, k, v and o projections moves the outputs, but their weights get
no gradient, while others at the same site do: the path is cut by detach, .data or torch.no_grad, or
the weights require no gradient. A module that is frozen as a whole, and frozen weights with others
that learn in their place (LoRA), are fine. Whether a part is frozen on purpose cannot be measured,
so this is a warning.

Why: The projection stays what its random initialisation made it. The loss falls, since the other ones
adapt to it, and the model is worse than it could be.

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
        k = self.split(self.key(x)).detach()
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
- PyTorch documentation, torch.Tensor.detach and "Locally disabling gradient computation".
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Detached, Severity, SubjectFacts, Violation, evidence_of, subject_rule


@subject_rule("MHA115", severity=Severity.WARNING, since="0.1")
def detached_projection(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag projections that the outputs depend on and that get no gradient."""
    for found in facts.learning.value.detached:
        sides, others = _listed(found.operands), _listed(found.learning)
        names = ", ".join(found.names)
        if found.how == "frozen":
            message = f"the projection of {sides} ({names}) is frozen, while {others} {_are(found)} trained"
        else:
            message = (
                f"no gradient reaches the projection of {sides} ({names}) in training mode, while one"
                f" reaches {others}"
            )
        yield Violation(
            message,
            at=found.span or facts.span,
            here="frozen here" if found.how == "frozen" else "the gradient ends here",
            why="it stays what its initialisation made it; freezing it on purpose is a design that"
            " cannot be told from a mistake",
            help="take detach, .data or no_grad off the path, or freeze all projections alike",
            evidence=evidence_of(facts.learning),
            confirm=f"witness: a change of {sides} moves the outputs by {found.influence:.2g} of their"
            f" size, and the gradient of {names} is zero",
        )


def _are(found: Detached) -> str:
    return "are" if len(found.learning) > 1 else "is"


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
