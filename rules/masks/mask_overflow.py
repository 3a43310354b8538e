"""The numbers of a mask do not fit the type that the call runs in.

What: A fill such as -1e9 in a half type, or torch.finfo(torch.float32).min in float16, becomes minus
infinity; two of the smallest numbers of a type added up do so in any type; and 0 times infinity is
NaN. Measured in the recorded types, beside the same call in float64. Two fills that meet where
other keys of the row stay visible harm nobody, and are not reported. It is an error where a query of
the recorded call gets NaN weights, and a warning where none does.

Why: Minus infinity hides as well, until all keys of a row have it: then the softmax gives NaN, where
the finite fill that was written would have given a number. NaN spreads to all that is computed from
it, and to every weight in training. In the example the first queries are padding, and a causal mask
leaves them no key: their results are set to 0, but the gradients of all weights are NaN.

Bad:

```python
# build: MultiHeadAttention(24, 4).half()
# call: torch.randn(3, 7, 24).half(), torch.arange(7) < torch.tensor([[0], [2], [3]])
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, pad):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        hidden = later | pad[:, None, None, :]
        bias = hidden.to(x.dtype) * -1e9
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = (scores + bias).softmax(dim=-1)
        context = (weights @ v).transpose(1, 2).flatten(2)
        return self.output(context).masked_fill(pad[:, :, None], 0)
```

Good:

```python
# build: MultiHeadAttention(24, 4).half()
# call: torch.randn(3, 7, 24).half(), torch.arange(7) < torch.tensor([[0], [2], [3]])
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, pad):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        hidden = later | pad[:, None, None, :]
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        scores = scores.masked_fill(hidden, torch.finfo(x.dtype).min)
        weights = scores.softmax(dim=-1)
        context = (weights @ v).transpose(1, 2).flatten(2)
        return self.output(context).masked_fill(pad[:, :, None], 0)
```

References:
- PyTorch documentation, torch.finfo: the largest float16 is 65504.
- IEEE 754-2019, section 7.4 (Overflow) and section 7.2 (Invalid operation).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    MaskOverflow,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA305", severity=Severity.ERROR, since="0.1")
def mask_overflow(facts: SiteFacts) -> Iterator[Violation]:
    """Flag masks that overflow in the recorded type."""
    overflow = facts.masking.value.overflow
    if overflow is None or (overflow.kind == "sum" and not overflow.nan_rows):
        return
    yield Violation(
        f"{_what(overflow)}; {_result(overflow)}",
        at=overflow.span or facts.info.at("mask", "scores"),
        here=f"{overflow.becomes:g} in {overflow.dtype}",
        why="a row in which every key is minus infinity gives NaN, and so does a mask that holds NaN",
        help=_help(overflow),
        evidence=evidence_of(facts.masking),
        severity=None if overflow.nan_rows else Severity.WARNING,
        confirm=_proof(overflow),
    )


def _what(overflow: MaskOverflow) -> str:
    match overflow.kind:
        case "sum":
            return f"two fills are added up to {overflow.value:.3g}, which {overflow.dtype} cannot hold"
        case "nan":
            return "the mask multiplies 0 by infinity, which is NaN"
    return f"the fill {overflow.value:.3g} does not fit into {overflow.dtype}"


def _result(overflow: MaskOverflow) -> str:
    if overflow.nan_rows:
        get = "gets" if overflow.nan_rows == 1 else "get"
        reach = ", and so does the output" if overflow.reaches else ""
        return f"{overflow.nan_rows} of {overflow.rows} queries {get} NaN weights{reach}"
    return f"it becomes {overflow.becomes:g}, and a row in which all keys are hidden would be NaN"


def _help(overflow: MaskOverflow) -> str:
    match overflow.kind:
        case "sum":
            return "join the masks as truth values (hidden_1 | hidden_2) and fill once"
        case "nan":
            return "fill instead of multiplying: torch.zeros(...).masked_fill(hidden, -inf)"
    return 'fill with torch.finfo(scores.dtype).min, or with float("-inf") where no row is empty'


def _proof(overflow: MaskOverflow) -> str:
    if overflow.kind == "nan":
        return f"identity: the recorded mask holds NaN ({overflow.dtype})"
    return (
        f"witness: the number is {overflow.value:.3g} in float64 and {overflow.becomes:g} in"
        f" {overflow.dtype}"
    )
