"""The scores are scaled by another quantity than 1/sqrt(head_dim).

What: The total gain from q and k to the softmax is neither 1/sqrt(head_dim) nor 1. The message
names the quantity that it is at every size tried: d_model, the number of heads, the length,
head_dim itself, a root the wrong way up, the right scale twice (by hand, and again inside
F.scaled_dot_product_attention), or a constant. A scale that the caller passes in, a learned one,
and normalised q and k are not judged. Also reported: two branches of one module that scale
differently, unless the flag between them is named for that. muP divides by head_dim on purpose: say
`--expect scale=mup`.

Why: Too small a scale makes every row nearly uniform, too large a one makes it one-hot; both change
with the configuration, so that a model tuned at one size fails at another.

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
        scores = q @ k.transpose(-2, -1) / x.shape[-1] ** 0.5
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
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. It scales by 1/sqrt(E)
  unless scale= is given.
- Yang et al. 2022, "Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter
  Transfer" (muP): 1/d instead of 1/sqrt(d).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from mha_lint.rule_api import (
    BranchScale,
    Kind,
    Known,
    Label,
    Scale,
    ScaleFactor,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)

MEANT = re.compile(r"scal|mup|temperature")
"""Flags that are there to change the scale."""


@site_rule("MHA202", severity=Severity.ERROR, since="0.1")
def wrong_scale(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a gain that is neither 1/sqrt(head_dim) nor 1, and branches that disagree."""
    if facts.info.kind in (Kind.POOLING, Kind.LINEAR, Kind.CHANNEL):
        return
    scale = facts.scale.value
    if scale.normalised or scale.learned:
        return
    if not _allowed(scale) and not _averaged(facts):
        yield _wrong(facts, scale)
    for branch in facts.branch_scales.value:
        differ = not math.isclose(branch.here, branch.other, rel_tol=1e-3)
        if differ and not MEANT.search(branch.flag.lower()):
            yield _disagreement(branch, scale, evidence_of(facts.branch_scales))


def _averaged(facts: SiteFacts) -> bool:
    """Return whether 1/T_k stands in the place of a softmax: the values' mean, not their sum."""
    return isinstance(facts.normaliser, Known) and facts.normaliser.value.averaged


def _allowed(scale: Scale) -> bool:
    missing = math.isclose(scale.value, 1, rel_tol=1e-3)  # MHA201
    return scale.right or missing or scale.stated is not None or scale.folded is not None


def _wrong(facts: SiteFacts, scale: Scale) -> Violation:
    head_dim = round(scale.expected**-2)
    factors = scale.factors
    due = f"head_dim is {head_dim}: 1/sqrt(head_dim) = {scale.expected:.3g}"
    if _twice(scale):
        first, last = (_where(factor) for factor in (factors[0], factors[-1]))
        what = f"scaled twice, by 1/sqrt(head_dim) {first} and {last}: {scale.value:.3g} in all"
        help_ = "keep one of the two; scaled_dot_product_attention scales by itself (scale=)"
    else:
        what = f"scaled by {_reading(scale)}"
        help_ = f"divide by math.sqrt(head_dim) = {head_dim**0.5:.3g} instead"
    several = len(factors) > 1
    return Violation(
        f"the scores are {what}, but {due}",
        at=factors[-1].span if several else facts.info.at("scale", "scores", "softmax"),
        here=f"times {factors[-1].factor:.3g} {_where(factors[-1])}"
        if several
        else f"scales by {scale.value:.3g}",
        why="too small a scale makes attention uniform, too large a one makes it one-hot",
        help=help_,
        evidence=(*evidence_of(facts.scale), *_coincidences(scale)),
        labels=tuple(Label(f.span, f"times {f.factor:.3g} {_where(f)}") for f in factors[:-1]),
        confirm="scale",
    )


def _twice(scale: Scale) -> bool:
    """Return whether two places apply the right scale, each by itself."""
    right = [f for f in scale.factors if math.isclose(f.factor, scale.expected, rel_tol=1e-3)]
    return len(right) > 1 and math.isclose(scale.value, scale.expected**2, rel_tol=1e-3)


def _reading(scale: Scale) -> str:
    heads = {f"{gain:.3g}" for gain in scale.per_head}
    if len(heads) > 1:
        return f"{min(scale.per_head):.3g} ... {max(scale.per_head):.3g}, depending on the head"
    if scale.named is not None:
        return f"{scale.named} = {scale.value:.3g}"
    if scale.follows_size is False:
        return f"the hard-coded constant {scale.value:.3g}"
    return f"{scale.value:.3g}"


def _where(factor: ScaleFactor) -> str:
    return "on the scores" if factor.on == "scores" else f"on {factor.on}"


def _coincidences(scale: Scale) -> tuple[str, ...]:
    if not scale.coincident:
        return ()
    return (f"at the sizes tried this cannot be told from {' or '.join(scale.coincident)}",)


def _disagreement(branch: BranchScale, scale: Scale, evidence: tuple[str, ...]) -> Violation:
    """Return the finding of a flag that changes the scale, at the side that is not as stated."""
    places = [(branch.span, branch.here), (branch.other_span, branch.other)]
    if scale.stated is not None:
        places.reverse()
    (at, value), (other_span, other) = places
    return Violation(
        f"the scale depends on {branch.flag}: {branch.here:.3g} in this call,"
        f" {branch.other:.3g} when it is flipped",
        at=at,
        here=f"scales by {value:.3g}",
        why="both branches should compute the same attention",
        help="pass the same scale to both, as scaled_dot_product_attention(..., scale=self.scale)",
        evidence=evidence,
        labels=(Label(other_span, f"scales by {other:.3g}"),) if other_span else (),
        confirm=f"witness: flipping {branch.flag} changes the scale"
        f" from {branch.here:.3g} to {branch.other:.3g}",
        branch=branch.flag,
    )
