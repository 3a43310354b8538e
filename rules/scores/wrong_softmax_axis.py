"""The softmax normalises another axis than the keys that are summed with V.

What: For each query, the weights over the keys must sum to 1, because the values are summed over
the keys. Here the normalised axis is another one: queries, heads, samples, features, several axes
flattened into one, or whatever torch.softmax picks when no dim is given. Both axes are measured:
which weights move when one score changes, and which of them one output element adds up.

Why: The result is no average of values: its size depends on the sequence, and with the queries as
the axis every position sees the others through the normaliser, later ones included.

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
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-2)
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
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1 (Scaled Dot-Product Attention),
  equation 1 and footnote 4.
- PyTorch documentation, torch.nn.functional.softmax: the implicit choice of dim is deprecated.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Label,
    Normaliser,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA204", severity=Severity.ERROR, since="0.1")
def wrong_softmax_axis(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a normalised axis that is not the one summed with V."""
    if facts.info.kind in (Kind.LINEAR, Kind.CHANNEL):
        return  # their softmax runs over features or channels by design
    normaliser = facts.normaliser.value
    if normaliser.function not in ("softmax", "sum") or not normaliser.axes:
        return
    if normaliser.axes == ("keys",):
        return
    keys = _keys_axis(normaliser)
    position = "" if keys is None else f", axis {keys}"
    axes = _listed(normaliser.axes)
    together = " together" if len(normaliser.axes) > 1 else ""
    implicit = " (no dim was given)" if normaliser.implicit else ""
    # Where rows are called keys and columns queries, the softmax is right and the sum is crossed.
    crossed = normaliser.axes == ("queries",) and "softmax_fault" in facts.info.spans
    at = facts.info.at("softmax_fault" if crossed else "softmax")
    value = facts.info.spans.get("value")
    yield Violation(
        f"{normaliser.function} over {axes}{together}{_position(normaliser)}{implicit},"
        f" but the keys{position and position + ','} are what is summed with V",
        at=at,
        here=f"normalises over {axes}{together}",
        why=_why(normaliser),
        help=_help(normaliser, keys),
        evidence=evidence_of(facts.normaliser),
        labels=(Label(value, f"sums over the keys{position}"),)
        if value and (at is None or value.line != at.line)
        else (),
        confirm="softmax-axis",
    )


def _position(normaliser: Normaliser) -> str:
    """Return where the normalised axes stand: ": axis 2 of (B, h, T_q, T_k)"."""
    if not normaliser.axis or not normaliser.shape:
        return ""
    noun = "axis" if len(normaliser.axis) == 1 else "axes"
    return f": {noun} {_listed(tuple(map(str, normaliser.axis)))} of {normaliser.shape}"


def _keys_axis(normaliser: Normaliser) -> int | None:
    """Return the axis of the keys, if the shape or the measurement names a single one."""
    word, _, number = normaliser.contracted_axis.partition(" ")
    if word == "axis" and number.isdigit():
        return int(number)
    names = [name.strip() for name in normaliser.shape.strip("()").split(",")]
    return names.index("T_k") if "T_k" in names else None


def _why(normaliser: Normaliser) -> str:
    rule = "one query's weights over the keys should sum to 1"
    if normaliser.row_sums is None:
        return rule
    lowest, highest = normaliser.row_sums
    return f"{rule}; here they sum to {lowest:.3g} ... {highest:.3g}"


def _help(normaliser: Normaliser, keys: int | None) -> str:
    if keys is None or set(normaliser.axes) > {"keys"}:
        return "normalise each query's scores over its keys alone, before any flattening"
    dim = -1 if keys == normaliser.shape.count(",") else keys
    if normaliser.function == "sum":
        return f"weights / weights.sum(dim={dim}, keepdim=True)"
    return f"softmax(scores, dim={dim})"


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
