"""Much more is lost to rounding than the type makes necessary.

What: The site runs in a half type (or in the one that --dtype asks for) on 16 draws of random
operands. Its rms error against the float64 reference is divided by that of a straightforward
implementation in the same type, every step in it; the median of the 16 ratios must not exceed 2, the
bound that FlashAttention is tested by. Legitimate spellings stay below 1.3. A module in float32 is
judged only where it goes through a half type between its operands and its context.

Why: Half types have 8 or 11 significant bits. A detour through large numbers, a cast in the wrong
place or a sum that is kept in too few bits costs several of them, and the error may differ from one
machine to the next: the model trains worse, and nobody sees why, since in float32 all is well.

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
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.bfloat16().softmax(dim=-1).to(v.dtype)
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
- Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness"; its
  tests allow twice the error of the PyTorch implementation in the same type.
- PyTorch documentation, "Numerical accuracy".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA902", severity=Severity.ERROR, since="0.1")
def precision_loss(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a site whose rounding error exceeds twice that of a straightforward implementation."""
    found = facts.half_loss.value
    if not found.exceeded:
        return
    if math.isfinite(found.ratio):
        lost = (
            f"in {found.dtype} it loses {found.ratio:.1f} times as much to rounding as a"
            f" straightforward implementation; up to {found.allowed:g} times is no fault"
        )
    else:
        lost = f"in {found.dtype} it overflows where a straightforward implementation does not"
    yield Violation(
        lost,
        at=found.span or facts.info.at("scores", "softmax"),
        here="loses most",
        why="in float64 the site is right: what is lost here is lost to the type alone",
        help="keep scores and weights near 1, and cast down only what is summed already",
        evidence=evidence_of(facts.half_loss),
        confirm=f"witness: over {found.draws} draws of operands the rms error is {found.error:.0e},"
        f" and {found.plain_error:.0e} for softmax(q k^T scale) v with every step in {found.dtype}",
    )
