"""The scores are not scaled at all before the softmax.

What: Dot-product attention divides q k^T by sqrt(head_dim). Here the total gain from q and k to the
softmax is 1: no factor on the scores, on q or on k, q and k are not normalised, no learned or
stated scale stands in, and the initial weights do not make up for it either (T5 has no scale
because W_Q starts smaller by sqrt(head_dim); that is fine). Where the initial weights could not be
compared, this is a warning.

Why: The dot product of two vectors of head_dim independent entries of unit variance has the
variance head_dim. Unscaled scores push the softmax to one-hot rows, where its gradient vanishes.

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
        scores = q @ k.transpose(-2, -1)
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1 (Scaled Dot-Product Attention),
  equation 1 and footnote 4.
- Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
  Transformer" (T5): the scale is folded into the initialisation.
- Wang et al. 2018, "Non-local Neural Networks", and Zhang et al. 2019, "Self-Attention Generative
  Adversarial Networks": one head over a feature map, without a scale by design; not flagged.
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. It scales by 1/sqrt(E)
  unless scale= is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Known,
    Label,
    Scale,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA201", severity=Severity.ERROR, since="0.1")
def missing_scale(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a gain of 1 where 1/sqrt(head_dim) is due."""
    if facts.info.kind in (Kind.POOLING, Kind.LINEAR, Kind.CHANNEL):
        return
    scale = facts.scale.value
    if scale.right or scale.normalised or scale.learned or scale.stated is not None:
        return
    if not math.isclose(scale.value, 1, rel_tol=1e-3) or scale.folded is not None:
        return
    head_dim = round(scale.expected**-2)
    if head_dim < 2 or _moved_after_softmax(scale) or _non_local(facts):
        return
    cancelled = " (its factors cancel out)" if scale.factors else ""
    unsure = scale.init_ratio is None
    yield Violation(
        f"the scores are not scaled{cancelled}: head_dim is {head_dim}, so"
        f" 1/sqrt(head_dim) = {scale.expected:.3g} is due"
        + (", unless the initial weights, which could not be compared, hold it" if unsure else ""),
        at=facts.info.at("scores", "softmax"),
        here="not scaled",
        why=f"unscaled scores spread {head_dim**0.5:.3g} times too wide, and the softmax saturates",
        help=f"divide by math.sqrt(head_dim) = {head_dim**0.5:.3g} before the softmax",
        evidence=(*evidence_of(facts.scale), *_initialisation(scale)),
        labels=tuple(Label(f.span, f"times {f.factor:.3g} on {f.on}") for f in scale.factors),
        severity=Severity.WARNING if unsure else None,
        confirm="scale",
    )


def _non_local(facts: SiteFacts) -> bool:
    """Return whether one head attends over a feature map: non-local blocks have no scale by design."""
    match facts.dims, facts.roles:
        case Known(value=dims), Known(value=roles) if dims.num_heads == 1:
            return any(p.convolution for p in (*roles.q, *roles.k))
    return False


def _moved_after_softmax(scale: Scale) -> bool:
    """Return whether the weights are scaled instead: that is MHA203."""
    named = scale.after_named or ""
    return not math.isclose(scale.after, 1, rel_tol=1e-3) and any(
        size in named for size in ("head_dim", "d_model")
    )


def _initialisation(scale: Scale) -> tuple[str, ...]:
    if scale.init_ratio is None:
        return ()
    return (
        "the initial weights do not make up for it:"
        f" for the width that it reads, W_q starts {scale.init_ratio:.3g} times as large as W_k,"
        f" not {scale.expected:.3g} times",
    )
