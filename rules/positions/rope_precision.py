"""The angles of a rotary embedding are computed in a half type.

What: The angle of position n is n times a frequency. It is computed once as the module does and once
in float64, and the largest difference is reported in radians where it exceeds eight times what
rounding a cosine or sine to the type costs. It is measured at the recorded length. Where the call
counts fewer than 1,024 positions from 0, its angles are computed once more with these positions
spread over 1,024. A table made before the call is judged at its own length. Keeping cosines and
sines in a half type is fine, since these lie between -1 and 1; keeping positions, frequencies or
their product there is not.

Why: An angle's rounding error grows with the angle. The example is off by 0.004 radians within 300
positions, and by 0.017 within 1,024. Rounding to a type costs up to half the distance between its
numbers: near 1000 these are half a radian apart in float16, and four in bfloat16, in which some
positions above 256 even coincide. So with length the model loses sight of positions, and only in half
precision.

Bad:

```python
# build: MultiHeadAttention(24, 4).half()
# call: torch.randn(3, 300, 24).half()
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.wq = nn.Linear(width, width)
        self.wk = nn.Linear(width, width)
        self.wv = nn.Linear(width, width)
        self.wo = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def rotate(self, x):
        steps = torch.arange(0, self.head_dim, 2, device=x.device) / self.head_dim
        positions = torch.arange(x.shape[-2], device=x.device)
        angles = positions[:, None].to(x.dtype) * (10000.0**-steps).to(x.dtype)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)

    def forward(self, x):
        q = self.rotate(self.split(self.wq(x)))
        k = self.rotate(self.split(self.wk(x)))
        v = self.split(self.wv(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.wo(context.transpose(1, 2).flatten(2))
```

Good:

```python
# build: MultiHeadAttention(24, 4).half()
# call: torch.randn(3, 300, 24).half()
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.wq = nn.Linear(width, width)
        self.wk = nn.Linear(width, width)
        self.wv = nn.Linear(width, width)
        self.wo = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def rotate(self, x):
        steps = torch.arange(0, self.head_dim, 2, device=x.device) / self.head_dim
        positions = torch.arange(x.shape[-2], device=x.device)
        angles = positions[:, None].float() * (10000.0**-steps)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)

    def forward(self, x):
        q = self.rotate(self.split(self.wq(x)))
        k = self.rotate(self.split(self.wk(x)))
        v = self.split(self.wv(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.wo(context.transpose(1, 2).flatten(2))
```

References:
- Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", equation 15.
- Wang et al. 2024, "When Precision Meets Position: BFloat16 Breaks Down RoPE in Long-Context
  Training".
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SiteFacts, Violation, evidence_of, site_rule


@site_rule("MHA504", severity=Severity.WARNING, since="0.1")
def rope_precision(facts: SiteFacts) -> Iterator[Violation]:
    """Flag rotary angles that lose more than their cosines and sines would in a half type."""
    found = facts.rotation_loss.value
    if not found.lossy:
        return
    where = "" if found.recorded else f", were there {found.length} of them"
    yield Violation(
        f"the rotary angles are computed in {found.dtype}: at position {found.position}{where}, one"
        f" is off by {found.error:.2g} rad",
        at=found.span or facts.info.at("split_q", "scores"),
        here=f"loses {found.error:.2g} rad",
        why=f"cosines and sines kept in {found.dtype} cost {found.cast:.0e}; an angle grows with the"
        " position, and its rounding with it",
        help="positions.float() * frequencies.float(), and cast cos and sin only",
        evidence=evidence_of(facts.rotation_loss),
        confirm=f"witness: the angle of position {found.position}, computed as here and in float64,"
        f" differs by {found.error:.3g} rad",
    )
