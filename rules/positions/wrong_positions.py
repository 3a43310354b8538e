"""Nothing tells several positions of one sequence apart.

What: Position numbers are cut off by a clamp, begin anew within a sequence, are repeated, or are the
same for all tokens; or they run over the batch, so that each sample gets one position. Seen on what
is added to equal tokens before the first attention, and on the angles of a rotary embedding. Numbers
that are passed in as an argument (packed documents) are the caller's, and are not judged; equal
blocks and whole periods (frames, grids) and a first token without a position are taken as meant.
Parts that the module itself cuts out of one sequence (pages) are none of these where attention spans
them all.

Why: Tokens at positions that are alike look alike: the model cannot tell their order. A table that is
too short should fail loudly rather than reuse its last row.

Bad:

```python
# build: TokenAttention(30, 24, 4)
# call: torch.randint(30, (3, 7))
import torch
from torch import nn


class TokenAttention(nn.Module):
    def __init__(self, words, width, heads):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(16, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        place = torch.arange(ids.shape[1]).clamp(max=4)
        x = self.words(ids) + self.places(place)
        return self.attention(x, x, x, need_weights=False)[0]
```

Good:

```python
# build: TokenAttention(30, 24, 4)
# call: torch.randint(30, (3, 7))
import torch
from torch import nn


class TokenAttention(nn.Module):
    def __init__(self, words, width, heads):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(16, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        place = torch.arange(ids.shape[1])
        x = self.words(ids) + self.places(place)
        return self.attention(x, x, x, need_weights=False)[0]
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.5 (Positional Encoding).
- PyTorch tutorial "Language Modeling with nn.Transformer and torchtext": its PositionalEncoding takes
  (T, B, C), and adds pe[:x.size(0)].
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    BatchMixing,
    Known,
    RepeatedPositions,
    Severity,
    SubjectFacts,
    Violation,
    known_among,
    settle,
    subject_rule,
)

_EITHER = ("same", "restarted")
"""Faults that are none where attention itself tells positions apart."""


@subject_rule("MHA508", severity=Severity.WARNING, since="0.1")
def wrong_positions(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag positions of one sequence that are alike."""
    rotations = [site.rotary for site in facts.sites]
    added = known_among(facts.positions)
    turned = [rotary.repeated for rotary in known_among(*rotations)]
    for found in dict.fromkeys((*added, *turned)):
        if found is None or (found.fault == "batch" and _mixes(facts)):
            continue
        if found in added and found.fault in _EITHER and _placed_otherwise(facts):
            continue
        yield Violation(
            _message(found),
            at=found.span or facts.span,
            here="positions become alike here",
            why="tokens at positions that are alike cannot be told apart by their place",
            help="one number for each position of the sequence: torch.arange(x.shape[1])",
            confirm=f"identity: equal tokens at positions {found.first} and {found.second} of one"
            " sequence stay equal",
        )
    settle(facts.positions)
    settle(*rotations)


def _mixes(facts: SubjectFacts) -> bool:
    """Return whether attention itself takes samples for positions, which is another fault."""
    match facts.batch:
        case Known(value=BatchMixing(mixes=True)):
            return True
    return False


def _placed_otherwise(facts: SubjectFacts) -> bool:
    """Return whether attention learns of positions itself: what is the same for all is no position."""
    return any(
        isinstance(site.rotary, Known) or isinstance(site.position_bias, Known)
        for site in facts.sites
    )


def _message(found: RepeatedPositions) -> str:
    pair = f"{found.first} and {found.second}"
    match found.fault:
        case "same":
            return f"{found.what} is the same at all {found.length} positions"
        case "clamped":
            return f"{found.what} is the same for the last positions: {pair} of {found.length} are alike"
        case "wrapped" | "restarted":
            return f"{found.what} begins anew within a sequence: positions {pair} are alike"
        case "batch":
            return (
                f"{found.what} follows the sample, and is the same at all {found.length} positions"
            )
        case _:
            return f"{found.what} is the same at positions {pair} of {found.length}"
