"""A causal mask over more keys than queries starts at the wrong key.

What: With a cache there are more keys than queries, and query i of the new ones stands at position
past + i. Its triangle must end there: `tril(diagonal=T_k - T_q)`. Here it starts at the first key,
as `is_causal=True` of scaled_dot_product_attention does, or rows of a square buffer that are
counted from 0.

Why: While decoding, the one new query sees the first key of the cache and nothing else, not even
itself. Training, where there are as many keys as queries, shows nothing of it.

Bad:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 1, 24), (torch.randn(3, 4, 5, 6), torch.randn(3, 4, 5, 6))
import torch
import torch.nn.functional as F
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

    def forward(self, x, past=None):
        q = self.split(self.to_q(x))
        k = self.split(self.to_k(x))
        v = self.split(self.to_v(x))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.to_out(context.transpose(1, 2).flatten(2)), (k, v)
```

Good:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 1, 24), (torch.randn(3, 4, 5, 6), torch.randn(3, 4, 5, 6))
import torch
import torch.nn.functional as F
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

    def forward(self, x, past=None):
        q = self.split(self.to_q(x))
        k = self.split(self.to_k(x))
        v = self.split(self.to_v(x))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        new, all_keys = q.size(2), k.size(2)
        keep = torch.ones(new, all_keys, dtype=torch.bool).tril(diagonal=all_keys - new)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.to_out(context.transpose(1, 2).flatten(2)), (k, v)
```

References:
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention: is_causal aligns the
  triangle to the upper left corner; torch.nn.attention.bias.causal_lower_right is the other one.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Known,
    Misalignment,
    Severity,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)


@subject_rule("MHA310", severity=Severity.ERROR, since="0.1")
def causal_misalignment(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag triangles that do not end at the query's own key."""
    recorded: tuple[Misalignment, ...] = ()
    if isinstance(facts.causality, Known):
        recorded = facts.causality.value.misaligned
    made = facts.cache.value.misaligned if isinstance(facts.cache, Known) else ()
    seen = set()
    for fault in recorded or made:
        if fault.span in seen:
            continue
        seen.add(fault.span)
        yield Violation(
            _message(fault),
            at=fault.span,
            here=f"starts at key {fault.last}, not at key {fault.own}",
            why="with a cache the new queries stand behind all cached keys",
            help=_help(fault),
            evidence=evidence_of(facts.cache),
            confirm=_proof(facts, fault),
        )
    if not recorded:
        _ = facts.causality.value  # undecided where nothing is known of it


def _message(fault: Misalignment) -> str:
    where = f" ({fault.made})" if fault.made else ""
    sizes = f"{fault.queries} {'query' if fault.queries == 1 else 'queries'} to {fault.keys} keys"
    sees = "key 0 alone" if fault.last == 0 else f"keys 0 to {fault.last}"
    hidden = ", and not its own" if fault.hidden else ""
    return (
        f"the causal mask of {sizes}{where} is aligned to the wrong key: query 0 sees {sees}{hidden};"
        f" it should see keys 0 to {fault.own}, its own"
    )


def _help(fault: Misalignment) -> str:
    if fault.is_causal:
        return (
            "is_causal counts from the first key: pass attn_mask="
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)"
        )
    return "shift the triangle by T_k - T_q, or cut the rows from T_k - T_q to T_k"


def _proof(facts: SubjectFacts, fault: Misalignment) -> str:
    if isinstance(facts.cache, Known) and not facts.cache.value.agrees:
        cache = facts.cache.value
        return (
            f"witness: decoded step by step, output {cache.position} differs by"
            f" {cache.change:.1g} from that of one call on the whole sequence"
        )
    return (
        f"identity: query 0 gives key {fault.own}, its own, the weight 0"
        if fault.hidden
        else (f"identity: query 0 sees key {fault.last}, and its own is {fault.own}")
    )
