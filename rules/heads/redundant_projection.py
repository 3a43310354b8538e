"""Two linear maps follow each other with nothing between them.

What: A q, k or v passes through two learned linear maps in a row: most often through a linear layer
in front of nn.MultiheadAttention, which holds W_Q, W_K and W_V already. Two that have fewer weights
than the one in their place would have are a design: a bottleneck, a convolution of each channel by
itself beside one that mixes channels.

Why: Two linear maps are one linear map. The second adds parameters and time, and nothing that the
first could not represent.

Bad:

```python
# build: SelfAttention(24, 4)
# call: torch.randn(3, 7, 24)
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        context, _ = self.attention(q, k, v)
        return context
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
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        context, _ = self.attention(x, x, x)
        return context
```

References:
- PyTorch documentation, torch.nn.MultiheadAttention. It projects its query, key and value itself
  (in_proj_weight).
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2 (Multi-Head Attention):
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Known,
    Severity,
    SiteFacts,
    Span,
    Stacked,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA108", severity=Severity.NOTE, since="0.1")
def redundant_projection(facts: SiteFacts) -> Iterator[Violation]:
    """Flag two learned linear maps in a row, once for each line."""
    by_line: dict[tuple[str, int] | None, list[Stacked]] = {}
    for pair in facts.stacked.value:
        if pair.operand not in _overwritten(facts):
            place = _place(facts, pair)
            by_line.setdefault((place.path, place.line) if place else None, []).append(pair)
    for pairs in by_line.values():
        first, second = _owner(pairs[0].first), _owner(pairs[0].second)
        operands = tuple(dict.fromkeys(pair.operand for pair in pairs))
        yield Violation(
            f"{first} and {second} are two linear maps in a row on {_listed(operands)},"
            " with nothing between them",
            at=_place(facts, pairs[0]),
            here=f"{second} follows {first} directly",
            why="two linear maps in a row can do no more than one",
            help=f"drop {_droppable(facts, first, second)}, or put a nonlinearity between the two",
            evidence=evidence_of(facts.stacked),
            confirm=f"identity: {second}({first}(x)) is one linear map of x",
        )


def _droppable(facts: SiteFacts, first: str, second: str) -> str:
    """Return which of the two can go: nn.MultiheadAttention always keeps its out_proj."""
    owner, _, name = first.rpartition(".")
    roles = facts.roles.value if isinstance(facts.roles, Known) else None
    held = [p.name for p in (*roles.q, *roles.k, *roles.v)] if roles is not None else []
    library = {f"{owner}.{n}".lstrip(".") for n in ("in_proj_weight", "q_proj_weight")}
    return second if name == "out_proj" and library & set(held) else first


def _overwritten(facts: SiteFacts) -> tuple[str, ...]:
    """Return the operands that a head loop overwrites: there MHA110 names the cause."""
    return facts.overwritten.value if isinstance(facts.overwritten, Known) else ()


def _place(facts: SiteFacts, pair: Stacked) -> Span | None:
    return pair.span or facts.info.at(pair.operand)


def _owner(name: str) -> str:
    return name.removesuffix(".weight").removesuffix(".bias")


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
