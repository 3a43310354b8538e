"""The concatenated heads are never mixed by a learned output projection.

What: Multi-head attention ends with W_O, a learned linear map over the concatenation of all heads.
Here there is more than one head, and no such map acts on the concatenation before the residual or
the return. A projection that is declared, or even computed, and never reaches the output counts as
missing. One head needs none, learned maps per head that are summed are the same thing, and a
projection in an enclosing class (BERT's self-attention and its output block) is seen there.

Why: Without W_O each head writes to its own slice of the channels only. No output channel can draw
on two heads, and the width of the residual stream is tied to the heads.

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

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return context.transpose(1, 2).flatten(2)
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.
- PyTorch documentation, torch.nn.MultiheadAttention. Its out_proj is W_O.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA101", severity=Severity.ERROR, since="0.1")
def missing_output_projection(facts: SiteFacts) -> Iterator[Violation]:
    """Flag several heads that no learned map mixes."""
    if facts.info.kind in (Kind.POOLING, Kind.LINEAR, Kind.CHANNEL):
        return
    output = facts.output_projection.value
    if output.present or output.enclosing is not None:
        return
    dims = facts.dims.value
    if dims.num_heads < 2:
        return
    unused = _owners(output.declared)
    verb = "reaches" if len(unused) == 1 else "reach"
    model = output.model_width
    inner = model if dims.num_heads * dims.v_dim == dims.d_model else "num_heads * v_dim"
    yield Violation(
        f"the {dims.num_heads} heads are concatenated, but no learned map mixes them"
        + (f": {' and '.join(unused)} never {verb} the output" if unused else ""),
        at=output.span or facts.info.at("merge", "value"),
        here="the heads leave here unmixed",
        why="W_O is part of the definition: without it each head writes to its own channels only",
        help=_apply(output.declared[0], facts.info.module)
        if len(unused) == 1
        else f"self.output = nn.Linear({inner}, {model}); return self.output(context)",
        evidence=evidence_of(facts.output_projection),
        confirm="identity: no learned map stands between the concatenated heads and the output",
    )


def _apply(declared: str, module: str) -> str:
    """Return how `declared` would be applied by the module that holds the heads."""
    own = declared.removeprefix(f"{module}.") if module else declared
    owner = own.removesuffix(".weight").removesuffix(".bias")
    if not all(part.isidentifier() for part in owner.split(".")):
        return f"apply {owner} to the context"
    return f"return self.{owner}(context)" if owner != own else f"return context @ self.{own}"


def _owners(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules that hold the parameters `names`."""
    owners = (name.removesuffix(".weight").removesuffix(".bias") for name in names)
    return tuple(dict.fromkeys(owners))
