"""A suppression comment suppresses nothing.

What: A comment `# mha-lint: ignore[MHA202]` hides the findings of a rule on its line, in its class or in
its file. Here nothing was found that it could hide. That is told only where it is certain: every
class and function of the file that can hold attention was judged, and the rule ran there and came to
a verdict. Codes that no rule has are told in a note of their own.

Why: The fault was put right, or never was, and the comment stayed. The next fault on that line would be
hidden by it.

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
        scores = q @ k.transpose(-2, -1)
        scores = scores / self.head_dim**0.5  # mha-lint: ignore[MHA202] was sqrt(width)
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
        scores = q @ k.transpose(-2, -1)
        scores = scores / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Ruff documentation, rule unused-noqa (RUF100), which does the same for noqa comments.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SuppressionUse, Violation, comment_rule


@comment_rule("MHA002", severity=Severity.WARNING, since="0.1")
def unused_suppression(use: SuppressionUse) -> Iterator[Violation]:
    """Flag the codes of a comment that hide no finding."""
    codes = ", ".join(use.unused)
    left = [code for code in use.codes if code not in use.unused]
    yield Violation(
        f"the comment suppresses {codes}, of which nothing is found on {use.covers}"
        if use.covers == "this line"
        else f"the comment suppresses {codes}, of which nothing is found in {use.covers}",
        at=use.span,
        here="suppresses nothing",
        why="the next finding here would be hidden by it",
        help=f"keep ignore[{', '.join(left)}] only" if left else "delete the comment",
        confirm=f"identity: {codes} ran on all of the file, and found nothing there",
    )
