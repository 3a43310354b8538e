"""The split into heads mixes positions, or samples, with channels.

What: A projection's output (B, T, h * head_dim) must first be viewed as (B, T, h, head_dim) and
then transposed to (B, h, T, head_dim). Viewing it as (B, h, T, head_dim) at once, folding the batch
in by a view, or taking the wrong axis of a fused q, k, v gives the right shape with the wrong
contents: one row of a head holds channels of several positions or samples. Any fixed order of the
channels (fused, interleaved) is fine.

Why: The scores compare pieces of different positions, a mask hides the wrong things, and every
later position leaks into earlier ones. Nothing crashes, and the model still trains, badly.

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
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        batch, length, _ = x.shape
        return x.reshape(batch, self.heads, length, self.head_dim)

    def forward(self, x):
        q = self.split(self.query(x))
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
- PyTorch documentation, torch.Tensor.view: a view keeps the order of the elements.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Layout,
    LayoutKind,
    Severity,
    SiteFacts,
    Span,
    Violation,
    known_among,
    settle,
    site_rule,
)


@site_rule("MHA104", severity=Severity.ERROR, since="0.1")
def scrambled_head_split(facts: SiteFacts) -> Iterator[Violation]:
    """Flag operands whose rows hold channels of several positions or samples."""
    splits = (facts.split_q, facts.split_k, facts.split_v)
    by_line: dict[tuple[str, int] | None, list[tuple[Layout, Span | None]]] = {}
    for split in known_among(*splits):
        if split.kind in (LayoutKind.SCRAMBLED, LayoutKind.MIXED_SAMPLES):
            place = split.span or facts.info.at(f"split_{split.operand}", split.operand)
            line = (place.path, place.line) if place else None
            by_line.setdefault(line, []).append((split, place))
    for found in by_line.values():
        first, place = found[0]
        operands = _listed([split.operand for split, _ in found])
        yield Violation(
            f"the split of {operands} into heads mixes {_mixed(first)} with channels",
            at=place,
            here=f"one row of a head holds several {_mixed(first)}",
            why="the scores then compare pieces of different " + _mixed(first),
            help="x.view(B, T, num_heads, head_dim).transpose(1, 2)",
            evidence=tuple(dict.fromkeys(split.example for split, _ in found if split.example)),
            confirm=f"split:{first.operand}",
        )
    samples = [x.operand for x in known_among(*splits) if x.kind is LayoutKind.OVER_BATCH]
    if samples:
        yield _over_samples(samples, facts)
    settle(*splits)


def _over_samples(operands: list[str], facts: SiteFacts) -> Violation:
    return Violation(
        f"a row of {_listed(operands)} is a whole sample: its positions stand in the place of channels",
        at=facts.info.at("scores"),
        here="compares samples: a score sums over the positions",
        why="what is attended to are the samples of the batch, and no position sees another one",
        help="keep an axis of channels behind that of positions, be it of one entry: (B, T, 1)",
        confirm=f"split:{operands[0]}",
    )


def _mixed(split: Layout) -> str:
    return "samples" if split.kind is LayoutKind.MIXED_SAMPLES else "positions"


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
