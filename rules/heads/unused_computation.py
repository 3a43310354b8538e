"""A declared projection or dropout never reaches the output.

What: The module declares a projection, a norm or a dropout, or computes a normalised copy of its
input, that has no influence on what the call returns: it is never called, its result is dropped, or
a later line overwrites it. When the part that is missing has a rule of its own (W_O: MHA101, a role
taken by another projection: MHA106), that rule speaks alone.

Why: Somebody meant it to act. Its parameters cost memory, get no gradient, and break
DistributedDataParallel unless find_unused_parameters is set.

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
        self.dropout = nn.Dropout(0.1)

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
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = self.dropout(scores.softmax(dim=-1))
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.parallel.DistributedDataParallel, find_unused_parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Known,
    Severity,
    SiteFacts,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)


@subject_rule("MHA109", severity=Severity.WARNING, since="0.1")
def unused_computation(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag what is declared and never reaches the output."""
    unused = facts.unused_modules.value
    named = {name for site in facts.sites for name in _named_by_other_rules(site)}
    for name, span in unused:
        if _owner(name) in named or any(one.startswith(f"{name}.") for one in named):
            continue
        what = _owner(name) if name.startswith("the ") else f"{_owner(name)} is declared but"
        yield Violation(
            f"{what} never reaches the output",
            at=span or facts.span,
            here="has no effect",
            why="a part that has no effect was forgotten, or is dead weight",
            help=f"apply {_owner(name)} where it belongs, or remove it",
            evidence=evidence_of(facts.unused_modules),
            confirm=f"identity: nothing that {_owner(name)} computes reaches the output",
        )


def _named_by_other_rules(site: SiteFacts) -> set[str]:
    """Return the modules that MHA101 or MHA106 names as unused at `site`."""
    named: set[str] = set()
    outputs: set[str] = set()
    if isinstance(site.output_projection, Known):
        output = site.output_projection.value
        outputs = {_owner(name) for name in output.declared}
        if not output.present and output.enclosing is None and _needs_output(site):
            named |= outputs
    if isinstance(site.roles, Known):
        roles = site.roles.value
        if roles.value_is != "v" or roles.same:
            named |= {_owner(name) for name in roles.unused} - outputs
    return named


def _needs_output(site: SiteFacts) -> bool:
    several = isinstance(site.dims, Known) and site.dims.value.num_heads > 1
    return several and site.info.kind in (Kind.SELF, Kind.CROSS)


def _owner(name: str) -> str:
    return name.removesuffix(".weight").removesuffix(".bias")
