"""A mask keeps what it should hide, and hides what it should keep.

What: There are two conventions for a mask of yes and no. F.scaled_dot_product_attention takes True
for "may be seen", and so do the masks of the Annotated Transformer and Hugging Face (1 is "keep");
nn.MultiheadAttention and masked_fill take True for "is hidden". Here a mask made for the one is read
by the other, so that attention sees the padding, or later positions only. A triangle that shows later
positions and no earlier one is reported whatever the names say. A mask that is an argument, or is
made from lengths or token ids, is reported where the call's own mask, the padding id, lengths, or
`--expect mask=keep` (or `hide`) say what True means. Where only a name or a comment says so, it is a
warning.

Why: The model learns from padding, or from the very tokens that it should predict, and sees nothing
of what it should read. The loss still falls.

Bad:

```python
# build: CausalAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
import torch.nn.functional as F
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        later = torch.ones(t, t, dtype=torch.bool).triu(diagonal=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=later)
        return self.out(y.transpose(1, 2).reshape(b, t, c))
```

Good:

```python
# build: CausalAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
import torch.nn.functional as F
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        later = torch.ones(t, t, dtype=torch.bool).triu(diagonal=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~later)
        return self.out(y.transpose(1, 2).reshape(b, t, c))
```

References:
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention: "A value of True indicates
  that the element should take part in attention."
- PyTorch documentation, torch.nn.MultiheadAttention: "For a binary mask, a True value indicates that
  the corresponding key value will be ignored".
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: masking of later positions.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Inversion,
    Label,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA302", severity=Severity.ERROR, since="0.1")
def inverted_mask(facts: SiteFacts) -> Iterator[Violation]:
    """Flag masks that are read the wrong way round."""
    for one in facts.mask_fit.value.inverted:
        match one.how:
            case "triangle":
                yield _triangle(facts, one)
            case "window":
                yield _window(facts, one)
            case _:
                yield _polarity(facts, one)


def _triangle(facts: SiteFacts, one: Inversion) -> Violation:
    where = "built here" if one.built else "taken here"
    return Violation(
        f"the causal mask shows the wrong side: {one.signs[0]}",
        at=one.span or facts.info.at("mask", "scores"),
        here="builds the triangle on the wrong side"
        if one.built
        else "takes it the other way round",
        why="a position must not see what comes after it, and needs what came before it",
        help="tril for what may be seen, triu(diagonal=1) for what is hidden; with"
        " F.scaled_dot_product_attention True may be seen, with nn.MultiheadAttention True is hidden",
        evidence=evidence_of(facts.mask_fit),
        labels=(Label(one.other, "read here" if one.built else "built here"),) if one.other else (),
        confirm=f"witness: {one.witness}" if one.witness else f"identity: {where}",
    )


def _window(facts: SiteFacts, one: Inversion) -> Violation:
    judged = "" if one.certain else " (judged from names and comments)"
    return Violation(
        f"the window is read the other way round{judged}: {one.signs[0]}",
        at=one.span or facts.info.at("mask", "scores"),
        here="hides the window, and shows what lies outside of it",
        why="what is near is what attention was to see, its own position first of all",
        help="invert the mask: hide what lies outside of the window",
        evidence=evidence_of(facts.mask_fit),
        severity=None if one.certain else Severity.WARNING,
        confirm=f"witness: {one.witness}" if one.witness else None,
    )


def _polarity(facts: SiteFacts, one: Inversion) -> Violation:
    does, meant = ("hides", "may be seen") if one.reads == "hide" else ("shows", "is hidden")
    judged = "" if one.certain else " (judged from names and comments)"
    subject = f"attention {does} the keys where {one.mask} is true"
    return Violation(
        f"{subject}, but true is meant for what {meant}{judged}: {one.signs[0]}",
        at=one.span or facts.info.at("mask", "scores"),
        here="makes the mask in the other convention"
        if one.built
        else "takes true the other way round",
        why="what should be hidden is all that attention sees",
        help=f"invert the mask: ~{one.mask}" if one.mask.isidentifier() else "invert the mask",
        evidence=(*one.signs, *evidence_of(facts.mask_fit)),
        labels=(Label(one.other, "read here" if one.built else "made here"),) if one.other else (),
        severity=None if one.certain else Severity.WARNING,
        confirm=f"witness: {one.witness}" if one.witness else None,
    )
