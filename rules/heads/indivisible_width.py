"""The number of heads does not divide the width that is split among them.

What: d_model is split into num_heads heads of d_model // num_heads channels. The integer division
rounds down, so that a remainder of channels is silently dropped, becomes an extra narrow head, or
breaks a later view. A head width that is given on its own (T5's d_kv) splits nothing and is fine.

Why: The projections are narrower than they look: the model has less capacity than its configuration
says, and a checkpoint of the intended width does not fit.

Bad:

```python
# build: MultiHeadAttention(26, 4)
# call: torch.randn(3, 7, 26)
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        inner = self.heads * self.head_dim
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner)
        self.value = nn.Linear(width, inner)
        self.output = nn.Linear(inner, width)

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
        if width % heads:
            raise ValueError(f"width {width} is not divisible by {heads} heads")
        self.heads, self.head_dim = heads, width // heads
        inner = self.heads * self.head_dim
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner)
        self.value = nn.Linear(width, inner)
        self.output = nn.Linear(inner, width)

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
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O. There d_k = d_v = d_model / h.
- PyTorch documentation, torch.nn.MultiheadAttention. embed_dim is split across num_heads and must
  be divisible by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SubjectFacts, Violation, evidence_of, subject_rule


@subject_rule("MHA102", severity=Severity.ERROR, since="0.1")
def indivisible_width(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag a width that num_heads does not divide."""
    lost = facts.truncation.value
    if lost is None:
        return
    heads, width = lost.num_heads, lost.width
    product = f"{heads} * {width // heads} = {heads * (width // heads)}"
    nearest = _nearest(heads, lost.valid)
    yield Violation(
        f"{heads} heads do not divide d_model {width}: {product}, remainder {lost.remainder}"
        + (f"; the nearest head counts that do: {nearest}" if nearest else ""),
        at=lost.span or facts.span,
        here=lost.how or f"{lost.remainder} channels are lost",
        why="the integer division rounds down, and the remaining channels take no part",
        help="refuse it: if d_model % num_heads: raise ValueError(...)"
        + (f"; or use {nearest.replace('and', 'or')} heads" if nearest else ""),
        evidence=evidence_of(facts.truncation),
        confirm=f"identity: {product}, not {width}",
    )


def _nearest(heads: int, valid: tuple[int, ...]) -> str:
    """Return the next smaller and the next larger of the `valid` head counts."""
    smaller = [n for n in valid if n < heads]
    larger = [n for n in valid if n > heads]
    return " and ".join(str(n) for n in [*sorted(smaller)[-1:], *sorted(larger)[:1]])
