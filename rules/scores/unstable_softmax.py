"""The softmax overflows, or falls apart, where a stable one would not.

What: Three things are looked for. An exponential is divided by its sum without the largest score
taken off first: run with larger scores, which are still finite, it gives inf / inf. In float16, the
raw scores of the recorded call overflow before the scale makes them small, though q scaled first
would fit. In softmax-plus-one, exp(s) / (1 + sum exp(s)), the maximum m is taken off the scores, but
the 1 stays: it has to become exp(-m).

Why: Scores grow while a model is trained, and one exponential beyond exp(88) in float32 (exp(11) in
float16) turns the whole row into NaN, and the next step the whole model. With an unshifted 1 nothing
overflows, but the weights no longer depend on how large the scores are, which is what the 1 is for:
a query can never attend to nothing.

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
        powers = scores.exp()
        weights = powers / powers.sum(dim=-1, keepdim=True)
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
        powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        weights = powers / powers.sum(dim=-1, keepdim=True)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.softmax. It takes the maximum off.
- Blanchard, Higham and Higham 2021, "Accurately computing the log-sum-exp and softmax functions".
- Miller 2023, "Attention Is Off By One" (softmax-plus-one).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    AddedToSum,
    Overflow,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA207", severity=Severity.WARNING, since="0.1")
def unstable_softmax(facts: SiteFacts) -> Iterator[Violation]:
    """Flag an exponential without its maximum, an early overflow, and an unshifted constant."""
    found = facts.stability.value
    if found.exponential is not None:
        yield _bare(facts, found.exponential)
    if found.product is not None:
        yield _early(facts, found.product, found.gain)
    if found.added is not None:
        yield _added(facts, found.added)


def _bare(facts: SiteFacts, found: Overflow) -> Violation:
    reached = f"{found.reached:.0f}"
    return Violation(
        f"the exponential of the scores is divided by its sum without their maximum taken off: in"
        f" {found.dtype} scores of {reached} give inf / inf",
        at=found.span or facts.info.at("softmax"),
        here=f"exp({reached}) is inf in {found.dtype}",
        why=f"{found.lost} of {found.total} weights are no numbers then, and scores grow in training",
        help="torch.softmax(scores, dim=-1), or take scores.amax(dim=-1, keepdim=True) off first",
        evidence=evidence_of(facts.stability),
        confirm=f"witness: with the scores as recorded all weights are finite; with finite scores of"
        f" up to {reached}, {found.lost} of {found.total} weights are inf or NaN",
    )


def _early(facts: SiteFacts, found: Overflow, gain: float) -> Violation:
    scaled = found.reached * abs(gain)
    return Violation(
        f"q.k overflows {found.dtype} before the scale is applied: {found.lost} of {found.total}"
        f" raw scores of this call exceed {found.limit:.0f}, and would be at most {scaled:.0f} if q"
        " were scaled first",
        at=found.span or facts.info.at("scores"),
        here=f"reaches {found.reached:.0f}",
        why="an infinite score takes all the weight of its row, and two of them make it NaN",
        help="scale q before the product: (q * scale) @ k.transpose(-2, -1)",
        evidence=evidence_of(facts.stability),
        confirm=f"witness: in {found.dtype} {found.lost} raw scores are infinite; in float64 the"
        f" largest of them is {found.reached:.6g}, times {abs(gain):.6g} a number that fits",
    )


def _added(facts: SiteFacts, found: AddedToSum) -> Violation:
    low, high = found.sums
    return Violation(
        f"{found.constant:.3g} is added to a sum of exponentials from which the maximum m was taken"
        f" off, while {found.constant:.3g} itself was not shifted: it has to become"
        f" {_times(found.constant)}exp(-m)",
        at=found.span or facts.info.at("softmax"),
        here=f"{found.constant:.3g} is not shifted",
        why=f"the weights of a query sum to {low:.3g} ... {high:.3g} however small all of its scores"
        " are: it can never attend to nothing",
        help="e / (torch.exp(-m) + e.sum(dim=-1, keepdim=True)), with m = max(0, largest score)",
        evidence=evidence_of(facts.stability),
        confirm="witness: with all scores of a query moved by 5 its weights stay as they are; with"
        f" {found.constant:.3g} shifted as well their sum changes",
    )


def _times(constant: float) -> str:
    return "" if abs(constant - 1) < 1e-6 else f"{constant:.3g} "
