"""A later position influences an earlier one in code that is meant to be causal.

What: Output i of a causal model may depend on positions 0 to i alone. Here it depends on a later one:
the triangle of the mask is off by a step, one of several layers has no mask, a mask is drawn and
hides nothing, or positions are mixed beside attention, by a pooling, a norm over time, a centred
convolution or a recurrence from behind, or the end of the sequence is rolled round to its start. Or the
mask is there on one branch alone: it is lost once a padding mask is given, or weights are asked for.
A triangle that hides the query's own position as well
leaves the first query nothing to see.

That code is meant to be causal is told by a mask of its own, or by `--expect causal`. Where names
or docstrings alone say so, this is a warning.

Why: In training the model reads the answer from its input: the loss is low and means nothing, and
what it generates later, without the answer, is poor.

Bad:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.to_out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.to_q(x))
        k = self.split(self.to_k(x))
        v = self.split(self.to_v(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        keep = torch.ones_like(scores, dtype=torch.bool).tril(diagonal=1)
        weights = scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))
```

Good:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.to_out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.to_q(x))
        k = self.split(self.to_k(x))
        v = self.split(self.to_v(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        keep = torch.ones_like(scores, dtype=torch.bool).tril()
        weights = scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: leftward information flow in the
  decoder is prevented to keep the auto-regressive property.
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention, is_causal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mha_lint.rule_api import (
    BranchMask,
    CausalFault,
    Known,
    Label,
    LayoutKind,
    Severity,
    SiteFacts,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)

WHY = "the model reads in training what it is to predict, and has nothing of it when it generates"
CROSS = re.compile(r"cross|enc(oder)?_|src|source|mem(ory)?_|context|multihead_attn")
"""Names of an attention that reads another source; ``encoder`` alone is a stack."""
FIRST_ROW = {
    "NaN": "query 0 sees nothing, and its softmax gives NaN",
    "zeros": "query 0 sees nothing, and gets zeros",
    "everything": "query 0 sees nothing, so that all keys, later ones too, share its weight",
}
HELP = {
    "strict": "hide keys from the next one on: triu(diagonal=1), or k > q, and keep the diagonal",
    "ahead": "hide keys from the next one on: triu(diagonal=1), or k > q",
    "unmasked": "give this layer the causal mask too",
    "lost": "join what hides by OR, what keeps by AND",
    "open": "hide the keys behind each query: a triangle as the mask of this attention",
    "other": "hide every key behind the query's own position",
    "mixing": "let each position read itself and earlier ones only: shift, pad on the left, or cumulate",
    "wrapped": "pad in front and drop what goes over the end, or hide the keys that wrapped around",
}


@subject_rule("MHA309", severity=Severity.ERROR, since="0.1")
def causal_leak(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag what lets a later position reach an earlier one."""
    lost = dict.fromkeys(b for s in facts.sites for b in _lost_on_a_branch(s))
    for branch in lost:
        yield _on_branch(branch)
    if lost and not isinstance(facts.causality, Known):
        return
    causality = facts.causality.value
    for fault in causality.faults:
        if fault.kind == "mixing" and _scrambled(facts):
            continue  # heads that are split or merged wrongly mix positions, and are told as such
        if fault.kind == "unmasked" and _is_for_a_source(facts, fault):
            continue  # cross-attention that is not given its source: MHA112
        if fault.kind == "other" and _undone(facts.sites[fault.site]):
            continue  # what was hidden is multiplied by 0 behind, and counts again: MHA303
        if fault.meant and not fault.stated and any(b.span == fault.span for b in lost):
            continue  # told already, and proven
        weak = bool(fault.meant) and not fault.stated
        leak = str(fault.leak) if fault.leak is not None else ""
        yield Violation(
            _message(fault),
            at=fault.span,
            here=_here(fault),
            why=WHY if fault.kind != "strict" else "every position misses itself, the first all",
            help=HELP[fault.kind],
            evidence=evidence_of(facts.causality),
            labels=(Label(fault.label, "masked here"),) if fault.label is not None else (),
            severity=Severity.WARNING if weak else None,
            confirm=f"witness: {leak}" if leak else _identity(fault),
        )


def _lost_on_a_branch(site: SiteFacts) -> list[BranchMask]:
    """Return the states of flags that choose an implementation, or a padding mask, without the future."""
    masks = site.branch_masks.value if isinstance(site.branch_masks, Known) else ()
    return [b for b in masks if b.future and (b.apart or b.flag.endswith(" given"))]


def _on_branch(branch: BranchMask) -> Violation:
    masked = branch.other_span
    apart = masked is not None and (branch.span is None or masked.line != branch.span.line)
    return Violation(
        f"with {branch.flag} no mask hides later positions, and on the other branch one does:"
        f" {branch.pairs} more pairs of one head are visible",
        at=branch.span,
        here=f"sees all positions with {branch.flag}",
        why="both branches should compute the same attention, and one of them reads the future",
        help="pass the causal mask on this branch too, joined with the padding mask",
        labels=(Label(masked, "masked here, on the other branch"),)
        if apart and masked is not None
        else (),
        confirm=f"witness: recorded with {branch.flag} and without, the same pairs are visible here"
        " and hidden there",
        branch=branch.flag,
    )


def _message(fault: CausalFault) -> str:
    leak = f": {fault.leak}" if fault.leak is not None else ""
    match fault.kind:
        case "strict":
            return (
                f"the causal mask hides every query's own position too: {FIRST_ROW[fault.detail]}"
            )
        case "ahead":
            keys = "the next key" if fault.count == 1 else f"{fault.count} later keys"
            return f"every query sees {keys}{leak}{_because(fault)}"
        case "unmasked":
            return (
                "this attention hides no later position, and another one of the same stack does"
                f"{leak}{_because(fault)}"
            )
        case "lost":
            return (
                "the causal mask is joined with one that lies on the other side of the diagonal, so"
                f" that nothing is hidden{leak}"
            )
        case "mixing":
            return (
                "later positions get around the causal mask: here they join earlier ones, in the"
                f" {fault.detail}{leak}"
            )
        case "wrapped":
            return f"the end of the sequence wraps around to its start{leak}"
    what = (
        "no mask hides later positions" if fault.kind == "open" else "later positions stay visible"
    )
    return f"{what}{leak}{_because(fault)}"


def _because(fault: CausalFault) -> str:
    if not fault.meant:
        return ""
    if fault.stated:
        return " (causal is expected)"
    return f" (meant to be causal by its {fault.meant} alone)"


def _here(fault: CausalFault) -> str:
    return {
        "strict": "hides the diagonal",
        "ahead": "starts too late",
        "unmasked": "has no mask",
        "lost": "hides nothing",
        "mixing": "later positions come in",
        "open": "sees all positions",
        "other": "leaves later positions visible",
        "wrapped": "the last positions come first",
    }[fault.kind]


def _identity(fault: CausalFault) -> str | None:
    return f"identity: {FIRST_ROW[fault.detail]}" if fault.kind == "strict" else None


def _is_for_a_source(facts: SubjectFacts, fault: CausalFault) -> bool:
    """Return whether the site should read another source, by its name or by one that nothing reads."""
    words = facts.sites[fault.site].info.module.lower()
    unused = facts.unused_inputs.value if isinstance(facts.unused_inputs, Known) else ()
    return bool(CROSS.search(words)) or any(one.looks_like_source for one in unused)


def _undone(site: SiteFacts) -> bool:
    """Return whether scores are multiplied by a mask that holds 0, hidden ones as well."""
    masking = site.masking
    numbers = masking.value.numbers if isinstance(masking, Known) else ()
    return any(one.how == "multiplied" and one.value == 0 for one in numbers)


def _scrambled(facts: SubjectFacts) -> bool:
    """Return whether heads are split, merged or repeated so that positions get mixed."""
    groups = [s.head_groups.value for s in facts.sites if isinstance(s.head_groups, Known)]
    if any(one.repeat is not None for one in groups):
        return True
    layouts = [x for s in facts.sites for x in (s.split_q, s.split_k, s.split_v, s.merge)]
    return any(isinstance(x, Known) and x.value.kind is not LayoutKind.RIGHT for x in layouts)
