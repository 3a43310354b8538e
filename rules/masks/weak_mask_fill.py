"""The number that should hide a key is too small to do so.

What: Scores are filled with a number, or one is added to them, that leaves a hidden key some
weight: 0, -1e-9 (for -1e9), a positive number, or one that large scores outrun. It is judged by the
weight that a hidden key keeps beside the largest visible one of its row, on the recorded call; and,
for fills above -100, with the inputs times 60 as well (a warning).

Why: The softmax sees a score of about 0 there, which is as good as any other. So the hidden keys
keep their weight, and nothing is hidden: padding takes part, or the future is seen.

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
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places[None, :]).abs() < 3
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.masked_fill(~near, -1e-9).softmax(dim=-1)
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
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places[None, :]).abs() < 3
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.masked_fill(~near, -1e9).softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3 (Applications of Attention in our
  Model): illegal connections are masked out "(setting to minus infinity)".
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention. Its reference code fills
  with minus infinity.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Label,
    Severity,
    SiteFacts,
    Violation,
    WeakFill,
    evidence_of,
    site_rule,
)

KEPT = 1e-6
"""A share of the largest weight that nobody sees."""
ALL = 1e6


@site_rule("MHA304", severity=Severity.ERROR, since="0.1")
def weak_mask_fill(facts: SiteFacts) -> Iterator[Violation]:
    """Flag fills that leave hidden keys some weight."""
    for weak in facts.masking.value.weak:
        apart = weak.applied is not None and weak.span is not None
        apart = apart and weak.applied.line != weak.span.line  # type: ignore[union-attr]
        yield Violation(
            f"the mask {_does(weak)}, which does not hide: {_result(weak)}",
            at=weak.span or facts.info.at("mask", "scores"),
            here=f"{weak.fill:g} is no minus infinity",
            why="the softmax sees an ordinary score there, and the hidden key takes part",
            help=_help(weak),
            evidence=evidence_of(facts.masking),
            labels=(Label(weak.applied, "acts here"),) if apart and weak.applied else (),
            severity=None if weak.kept > KEPT or _outrun(weak) else Severity.WARNING,
            confirm=f"identity: {_proof(weak)}",
        )


def _does(weak: WeakFill) -> str:
    if weak.how == "added":
        return f"takes no more than {abs(weak.fill):g} off hidden scores"
    return f"fills hidden scores with {weak.fill:g}"


def _outrun(weak: WeakFill) -> bool:
    return weak.kept <= KEPT and weak.level > weak.lowest


def _kept(weak: WeakFill) -> str:
    share = weak.kept if weak.kept > KEPT else weak.loud
    if share > ALL:
        return "takes all the weight from the visible ones"
    times = "times" if share >= 1 else "of"
    return f"keeps {share:.2g} {times} the weight of the largest visible one"


def _result(weak: WeakFill) -> str:
    if _outrun(weak):
        return f"the scores of visible keys go down to {weak.lowest:.3g}, below that"
    later = "" if weak.kept > KEPT else " once the inputs are 60 times as large"
    return f"a hidden key {_kept(weak)}{later}"


def _proof(weak: WeakFill) -> str:
    if _outrun(weak):
        return (
            f"in the recorded call a hidden key has {weak.level:.3g} at the softmax, and a visible one"
            f" {weak.lowest:.3g}"
        )
    loudly = "" if weak.kept > KEPT else ", with its inputs times 60,"
    return f"by the weights of the recorded call{loudly} a hidden key {_kept(weak)} of its row"


def _help(weak: WeakFill) -> str:
    if abs(weak.fill) < 1e-3 and weak.fill != 0:
        return f'-1e9 was probably meant, not {weak.fill:g}; float("-inf") hides in any case'
    return 'fill with float("-inf"), or torch.finfo(scores.dtype).min'
