"""A right mask lies at the wrong place: another axis, sample, head, position or source.

What: A mask says something about one key of one sample. Single elements of it are turned over here,
and what they hide is compared with what the queries and keys really hold. It is reported when an
element about a key hides a query instead; when the mask of one sample acts on another (heads repeated
in the other order: nn.MultiheadAttention folds sample by sample) or lands on the heads because there
are as many of them as samples; when a mask that was padded for extra tokens is padded at the other
end; when it speaks of another sequence than the keys come from; when two masks are joined so that
together they hide nothing; when a window lies on the wrong side of the
query; and, as a warning, when a window is one position shorter than its size says.

Why: Some keys are hidden that should be seen, and padding or other samples' words are seen. Shapes
fit, and with samples of equal length nothing shows.

Bad:

```python
# build: TextReader(24, 4)
# call: torch.randn(3, 5, 24), torch.randn(3, 7, 24), torch.arange(7) < torch.tensor([[7], [5], [2]])
from torch import nn


class TextReader(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, video, text, text_valid):
        hidden = (~text_valid)[:, None, :].expand(-1, video.shape[1], -1)
        context, _ = self.attention(video, text, text, attn_mask=hidden.repeat(self.heads, 1, 1))
        return context
```

Good:

```python
# build: TextReader(24, 4)
# call: torch.randn(3, 5, 24), torch.randn(3, 7, 24), torch.arange(7) < torch.tensor([[7], [5], [2]])
from torch import nn


class TextReader(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, video, text, text_valid):
        hidden = (~text_valid)[:, None, :].expand(-1, video.shape[1], -1)
        hidden = hidden.repeat_interleave(self.heads, dim=0)
        context, _ = self.attention(video, text, text, attn_mask=hidden)
        return context
```

References:
- PyTorch documentation, torch.nn.MultiheadAttention: attn_mask of shape (N * num_heads, L, S).
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Misplaced,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)

_HERE = {
    "queries": "lays the mask on the query axis",
    "samples": "repeats the mask in the other order",
    "heads": "lets the samples meet the heads",
    "positions": "makes the mask as long as the keys, at the wrong end",
    "source": "hands over the mask of the other sequence",
    "halves": "hides nothing",
    "either": "shows a key as soon as one of the two masks allows it",
    "window": "shows the wrong side",
    "short": "ends a position too early or too late",
    "lopsided": "ends a position too early on one side",
    "beyond": "ends a position too late",
    "within": "ends a position too early",
}
_HELP = {
    "queries": "mask[:, None, None, :] for (B, T_k) over scores (B, h, T_q, T_k)",
    "samples": "mask.repeat_interleave(num_heads, dim=0), which keeps the heads of a sample together",
    "heads": "mask[:, None] brings (B, T_q, T_k) to (B, 1, T_q, T_k)",
    "positions": "pad the mask at the end at which the tokens were added",
    "halves": "join what is hidden with |, what may be seen with &",
    "either": "join what may be seen with &, what is hidden with |",
    "window": "keep 0 <= i - j < window, for query i and key j",
    "short": "keep 0 <= i - j < window, for query i and key j",
    "lopsided": "keep (i - j).abs() <= reach, for query i and key j",
    "beyond": "keep arange(T) < lengths, hide arange(T) >= lengths",
    "within": "keep arange(T) < lengths; with a class token in front, arange(T + 1) <= lengths",
}
_WHAT = {
    "queries": "lies on the query axis",
    "samples": "lands on other samples",
    "heads": "lands on the heads",
    "positions": "is shifted against the keys",
    "source": "belongs to another sequence",
    "halves": "hides nothing",
    "either": "hides too little",
    "window": "lies on the wrong side of the query",
    "short": "does not hold what its size says",
    "lopsided": "is shorter on one side",
    "beyond": "ends one position too late",
    "within": "ends one position too early",
}


@site_rule("MHA308", severity=Severity.ERROR, since="0.1")
def misaligned_mask(facts: SiteFacts) -> Iterator[Violation]:
    """Flag masks that hide at another place than they speak of."""
    for one in facts.mask_fit.value.misplaced:
        yield _violation(facts, one)


def _violation(facts: SiteFacts, one: Misplaced) -> Violation:
    judged = "" if one.certain else " (judged from names)"
    help_ = f"pass {one.meant}" if one.kind == "source" and one.meant else _HELP.get(one.kind, "")
    return Violation(
        f"{one.mask} {_WHAT[one.kind]}{judged}: {one.says}",
        at=one.span or facts.info.at("mask", "scores"),
        here=_HERE[one.kind],
        why="some keys are hidden that should be seen, and others seen that should be hidden",
        help=help_,
        evidence=evidence_of(facts.mask_fit),
        severity=None if one.certain else Severity.WARNING,
        confirm=f"witness: {one.witness}" if one.witness and one.certain else None,
    )
