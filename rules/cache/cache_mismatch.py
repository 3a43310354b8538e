"""Decoding with a cache gives something else than one call on the whole sequence.

What: What a model returns for a position must not depend on how the sequence was cut: all at once, or
one position at a time with what came before in a cache. Here it does: the new query is counted from
0, a bias is made from the number of new positions, cached keys are rotated again, or past and
present are joined in another order.

Why: The model was trained on whole sequences, and generates with the cache: from the second position
on it sees something that it was never trained on.

Bad:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads, longest=64):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.places = nn.Embedding(longest, width)
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.to_out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x, past=None):
        x = x + self.places(torch.arange(x.size(1)))
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

Good:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads, longest=64):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.places = nn.Embedding(longest, width)
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.to_out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x, past=None):
        start = 0 if past is None else past[0].size(2)
        x = x + self.places(torch.arange(start, start + x.size(1)))
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
- Pope et al. 2022, "Efficiently Scaling Transformer Inference", section 2: the cache of keys and
  values holds what a forward pass on the whole sequence would compute again.
- Hugging Face Transformers documentation, "Best practices for generation with cache":
  cache_position tells the positions of the new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    CacheCheck,
    Severity,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)

CAUSES = {
    "keys lost": "keys are missing",
    "unread": "what is cached is never read",
    "order": "past and present are joined in another order",
    "swapped": "cached keys and values come back in each other's place",
    "stored keys": "the cached keys are not those of the whole sequence",
    "stored values": "the values are not those of the whole sequence",
    "states": "the new position is counted anew in what is added to the states",
    "query": "the new query is counted from another position",
    "key": "the new key is counted from another position",
    "bias": "the bias on the scores is made for other positions",
    "mask": "the mask of the step hides other keys",
}
HELP = {
    "unread": "concatenate the cached keys and values with the new ones before the scores",
    "keys lost": "concatenate the cached keys and values with the new ones, and return the result",
    "order": "torch.cat([past, new], dim=...) along the axis of positions",
    "swapped": "return keys and values in the order in which they are read",
    "stored keys": "cache keys either before or after positions are applied, and apply them once",
    "stored values": "concatenate values as the keys are, along the axis of positions",
    "mask": "make the mask for the last rows of the whole: tril(diagonal=T_k - T_q)",
}


@subject_rule("MHA521", severity=Severity.ERROR, since="0.1")
def cache_mismatch(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag steps whose output differs from that of the whole sequence."""
    cache = facts.cache.value
    if cache.agrees or cache.misaligned:
        return  # a triangle that is misplaced in the step is MHA310
    if cache.cause == "axis":
        yield _refused(facts)
        return
    what = CAUSES.get(cache.cause, "the step computes something else")
    named = cache.argument
    yield Violation(
        f"decoding with {named} differs from one call on the whole sequence: {what} ({_by(cache)})",
        at=cache.span or facts.span,
        here=cache.detail or "differs from the whole sequence",
        why="the model is trained on whole sequences and generates with the cache",
        help=HELP.get(cache.cause, "count new positions from the length of the cache, not from 0"),
        evidence=evidence_of(facts.cache),
        confirm=f"witness: {_by(cache)}",
    )


def _refused(facts: SubjectFacts) -> Violation:
    cache = facts.cache.value
    return Violation(
        f"what the call returns as {cache.argument} cannot be passed back: past and present are"
        " joined along another axis than that of positions",
        at=cache.span or facts.span,
        here=cache.detail,
        why="no second step can be made",
        help="concatenate along the axis whose length is the number of positions",
        evidence=evidence_of(facts.cache),
        confirm=f"witness: with {cache.position} positions cached, the next step raises an error",
    )


def _by(cache: CacheCheck) -> str:
    return (
        f"output {cache.position}, with the positions before it cached, differs by {cache.change:.1g}"
        " with weights and inputs drawn anew"
    )
