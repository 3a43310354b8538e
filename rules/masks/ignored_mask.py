"""A mask is given or built, and has no effect on attention.

What: An argument that is a mask by its form and name is never read; or a mask is built in the call
and not passed on; or the result of a fill is thrown away, as by masked_fill without the underscore
that changes in place. A mask that only pools, or that another layer uses, is not ignored.
Also reported: a flag that chooses between a fused call and spelled attention, one of which leaves a
mask out.

Why: The code looks as if padding or the future were hidden, and nothing is. Nobody notices, since
the shapes fit and training still works.

Bad:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24), torch.arange(7) > torch.tensor([[6], [4], [2]])
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, hidden):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        scores.masked_fill(hidden[:, None, None, :], float("-inf"))
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

Good:

```python
# build: MultiHeadAttention(24, 4)
# call: torch.randn(3, 7, 24), torch.arange(7) > torch.tensor([[6], [4], [2]])
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, hidden):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- PyTorch documentation, torch.Tensor.masked_fill: the out-of-place version of masked_fill_.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    BranchMask,
    IgnoredMask,
    Known,
    Label,
    Severity,
    SiteFacts,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)


@subject_rule("MHA307", severity=Severity.ERROR, since="0.1")
def ignored_mask(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag masks without any effect on attention."""
    lost = dict.fromkeys(b for s in facts.sites for b in _lost_on_a_branch(s))
    for branch in lost:
        masked = branch.other_span
        yield Violation(
            f"with {branch.flag} a mask has no effect: {branch.pairs} pairs of one head are visible that"
            " the other branch hides",
            at=branch.span or facts.span,
            here=f"attends without it with {branch.flag}",
            why="both branches should compute the same attention",
            help="pass the mask on this branch too",
            labels=(Label(masked, "masked here, on the other branch"),) if masked else (),
            confirm=f"witness: recorded with {branch.flag} and without, the same pairs are visible here"
            " and hidden there",
            branch=branch.flag,
        )
    if lost and not isinstance(facts.ignored_masks, Known):
        return
    for mask in facts.ignored_masks.value:
        apart = mask.made is not None and (mask.span is None or mask.made.line != mask.span.line)
        yield Violation(
            _message(mask),
            at=mask.span or facts.span,
            here=_HERE[mask.how],
            why="the code looks as if something were hidden, and every key takes part",
            help=_HELP[mask.how],
            evidence=evidence_of(facts.ignored_masks),
            labels=(Label(mask.made, "made here"),) if apart and mask.made is not None else (),
            severity=None if mask.named else Severity.WARNING,
            confirm=f"identity: in the recorded graph {_IDENTITY[mask.how]}",
        )


def _lost_on_a_branch(site: SiteFacts) -> list[BranchMask]:
    """Return the states of flags that choose an implementation in which a mask of padding is lost."""
    masks = site.branch_masks.value if isinstance(site.branch_masks, Known) else ()
    return [b for b in masks if b.apart and not b.future]


_HERE = {
    "unread": "attends without it",
    "built": "attends without it",
    "discarded": "the result is thrown away",
}
_HELP = {
    "unread": "pass the mask on to the attention, or fill the scores with it",
    "built": "pass the mask on to the attention, or fill the scores with it",
    "discarded": "assign the result, or use masked_fill_, which changes in place",
}
_IDENTITY = {
    "unread": "nothing that the outputs depend on reads the argument",
    "built": "no scores and no weights depend on the mask",
    "discarded": "nothing reads the masked tensor",
}


def _message(mask: IgnoredMask) -> str:
    form = f"{mask.dtype}, shape {mask.shape}"
    if mask.how == "discarded":
        return f"the result of masking is thrown away: the mask ({form}) hides nothing"
    origin = f" made from {' and '.join(mask.inputs)}" if mask.inputs else ""
    if mask.how == "built" and mask.name:
        return f"the mask {mask.name} ({form}) is kept in a buffer, and attention does not get it"
    if mask.how == "built":
        return f"a mask{origin} ({form}) is built, and attention does not get it"
    weak = "" if mask.named else ", which looks like a mask by its form,"
    return f"the argument {mask.name} ({form}){weak} has no effect on attention"
