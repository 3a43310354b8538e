"""A mask of truth values is added or multiplied as the numbers 0 and 1.

What: A mask that holds True and False, or 1 and 0, is added to the scores or multiplied into them
before the softmax, and nothing else hides the keys. Or a bool tensor is filled with a number such
as -1e9: a bool holds True for every number but 0, so that the mask is lost. Factors that depend on
the position (a decay) are a design, and so is a product that a fill follows.

Why: Adding 1 to a score makes its weight e times as large, and a score of 0 is as good as any
other. So no key is hidden: the hidden ones keep a weight of the same order as the visible ones.

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
        weights = (scores * near).softmax(dim=-1)
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
        weights = scores.masked_fill(~near, float("-inf")).softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention: a boolean attn_mask says
  which keys take part, a floating one is added to the scores.
- PyTorch documentation, torch.Tensor.masked_fill_: the tensor keeps its type.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    MaskNumber,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA303", severity=Severity.ERROR, since="0.1")
def mask_as_number(facts: SiteFacts) -> Iterator[Violation]:
    """Flag masks of truth values that are used as numbers."""
    for number in facts.masking.value.numbers:
        yield Violation(
            _message(number),
            at=number.span or facts.info.at("mask", "scores"),
            here=_here(number),
            why=_why(number),
            help=_HELP[number.how],
            evidence=evidence_of(facts.masking),
            confirm=_proof(number),
        )


_HELP = {
    "added": 'fill the scores where the mask hides: scores.masked_fill(hidden, float("-inf"))',
    "multiplied": 'fill the scores where the mask hides: scores.masked_fill(hidden, float("-inf"))',
    "collapsed": "fill a float tensor, or fill the scores: scores.masked_fill(hidden, value)",
}


def _message(number: MaskNumber) -> str:
    if number.how == "collapsed":
        return f"a bool tensor is filled with {number.value:g}, which it can only hold as True"
    if number.how == "added":
        return f"a mask of 0 and 1 ({number.dtype}) is added to the scores, and hides nothing"
    if number.value == 0:
        return (
            f"the scores are multiplied by a mask of 0 and 1 ({number.dtype}): a hidden score is 0,"
            " and not minus infinity"
        )
    return f"the scores are multiplied by a mask that holds {number.value:g}"


def _here(number: MaskNumber) -> str:
    if number.how == "collapsed":
        return "True everywhere"
    if number.how == "added" and number.made is not None and number.span == number.made:
        return "made as numbers, which the attention adds to its scores"
    return "adds 1 to a score" if number.how == "added" else f"a score times {number.value:g}"


def _why(number: MaskNumber) -> str:
    if number.how == "collapsed":
        return "True is 1 where it is added, and lets a key pass where it is read as a mask"
    if number.how == "multiplied" and number.value != 0:
        return "a score below 0 becomes the largest of its row, and the hidden key gets the weight"
    return "a key on the hidden side of the mask keeps a weight of the same order as the others"


def _proof(number: MaskNumber) -> str:
    if number.how == "collapsed":
        return (
            f"identity: torch.tensor(True) is all that a bool tensor can hold of {number.value:g}"
        )
    return (
        "identity: what the mask tells apart gets weights on both sides, on the smaller one up to"
        f" {number.kept:.2g} times those on the other"
    )
