"""One call changes the result of the next, though no cache is passed.

What: The module keeps something from one call to the next, in a buffer or an attribute: keys and
values, a running position, a memory. Two equal calls then return different results. Where the class
has a method that resets what it keeps, or a switch for it, it is a design: a note.

Why: A batch that is evaluated depends on the batch before it, a new prompt sees the end of the last
one, and a checkpoint or another worker holds another state.

Bad:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.seen = []

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        self.seen.append(x)
        context = torch.cat(self.seen, dim=1)
        q = self.split(self.query(x))
        k = self.split(self.key(context))
        v = self.split(self.value(context))
        weights = (q @ k.transpose(-2, -1) / self.head_dim**0.5).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))
```

Good:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x, seen=None):
        context = x if seen is None else torch.cat([seen, x], dim=1)
        q = self.split(self.query(x))
        k = self.split(self.key(context))
        v = self.split(self.value(context))
        weights = (q @ k.transpose(-2, -1) / self.head_dim**0.5).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.Module.eval: what still changes in eval mode is the module's own.
- Dai et al. 2019, "Transformer-XL", section 3.2: the memory of earlier segments is an input of the
  model, passed from segment to segment.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Known,
    Severity,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)


@subject_rule("MHA522", severity=Severity.ERROR, since="0.1")
def state_between_calls(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag modules whose second equal call returns something else."""
    state = facts.state.value
    if not state.differs or _draws(facts):
        return
    keeps = f"self.{state.name.rpartition('.')[2]} keeps" if state.name else "the module keeps"
    by = "in shape" if state.change == float("inf") else f"by {state.change:.1g}"
    meant = f", on purpose as {state.documented} shows" if state.documented else ""
    yield Violation(
        f"{keeps} something from one call to the next{meant}: after a call on other inputs the"
        f" output differs {by}",
        at=state.span or facts.span,
        here="is kept for the next call",
        why="a result then depends on the calls before it",
        help="take what came before as an argument and return it, or make it anew in every call",
        evidence=evidence_of(facts.state),
        severity=Severity.NOTE if state.documented else None,
        confirm=f"witness: called once at once and once after a call on other inputs, the outputs differ {by}",
    )


def _draws(facts: SubjectFacts) -> bool:
    """Return whether the call draws random numbers: what changes then is where in them it stands."""
    return isinstance(facts.deterministic, Known) and not facts.deterministic.value
