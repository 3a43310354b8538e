"""Heads, or two of q, k and v, use one and the same weight.

What: Every head has a W_Q, W_K and W_V of its own. Here two of q, k and v read the same channels of
one projection, or all heads apply one small weight to their slices (a list built with `[layer] * h`
holds one layer h times). Multi-query attention shares keys and values among the query heads and is
fine, also where the one head of keys is that of values: each head's W_Q and W_O are then maps of its
own of one latent. Reformer shares q and k on purpose, with keys normalised and a token's own key
hidden: hence a warning.

Why: With q = k the score matrix is symmetric, and tokens tend to look at themselves most; heads that
share all their weights cannot specialise.

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
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.key(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.
- Kitaev et al. 2020, "Reformer: The Efficient Transformer", section 2 (shared-QK Transformer).
- Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need" (multi-query attention).
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Known,
    Projection,
    Roles,
    Severity,
    SiteFacts,
    Span,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA107", severity=Severity.WARNING, since="0.1")
def shared_projection(facts: SiteFacts) -> Iterator[Violation]:
    """Flag one weight behind two operands or behind all heads."""
    roles = facts.roles.value
    for pair in roles.same if not _left_over(facts, roles) else ():
        if names := _names(getattr(roles, pair[0])):
            yield Violation(
                f"{_listed(pair)} come from one and the same projection, {_listed(names)}",
                at=facts.info.at(pair[-1]),
                here=f"the weight of {_listed(pair)}",
                why="with one weight for both, the two can never differ",
                help=f"give {pair[-1]} a projection of its own, or suppress this if it is meant",
                evidence=evidence_of(facts.roles),
                confirm=f"identity: {_listed(pair)} are the same channels of {names[0]}",
            )
    shared = _shared_by_heads(facts, roles)
    if shared:
        names = _names(getattr(roles, shared[0]))
        yield Violation(
            f"all heads make {_listed(shared)} with one and the same weight"
            + (f", {_listed(names)}" if names else ""),
            at=_listed_at(getattr(roles, shared[0])) or facts.info.at(shared[0]),
            here="one weight for all heads",
            why="heads that share their weights cannot learn to look for different things",
            help="use one nn.Linear(d_model, num_heads * head_dim) and split its output, or build"
            " a list with a new layer for each head",
            evidence=evidence_of(facts.roles),
            confirm=f"identity: one storage serves every head's {_listed(shared)}",
        )


def _listed_at(projections: tuple[Projection, ...]) -> Span | None:
    """Return where a list of layers is made: there one layer became all heads'."""
    for one in projections:
        if any(part.isdigit() for part in one.name.split(".")):
            return one.declared
    return None


def _left_over(facts: SiteFacts, roles: Roles) -> bool:
    """Return whether a projection of a q, k or v is unused: then MHA106 reports the pair."""
    match facts.output_projection:
        case Known(value=output):
            return not set(roles.unused) <= set(output.declared)
        case _:
            return bool(roles.unused)


def _shared_by_heads(facts: SiteFacts, roles: Roles) -> tuple[str, ...]:
    """Return the operands whose heads share a weight, keys and values of multi-query aside."""
    match facts.dims:
        case Known(value=dims) if dims.num_heads < 2:
            return ()
        case Known(value=dims) if dims.num_kv_heads < 2:
            return tuple(operand for operand in roles.heads_share if operand == "q")
        case _:
            return roles.heads_share


def _names(projections: tuple[Projection, ...]) -> tuple[str, ...]:
    names = (p.name.removesuffix(".weight").removesuffix(".bias") for p in projections)
    return tuple(dict.fromkeys(names))


def _listed(names: tuple[str, ...] | str) -> str:
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
