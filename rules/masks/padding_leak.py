"""Padded positions influence real ones.

What: Samples of different length are padded to one. The code here knows where: it compares token ids
with the padding id, has lengths or a mask, and uses it for a pooling or in another layer; or its
embedding has a padding index and the call's ids end in it. But this attention hides no key, so that
real positions attend to padding. It was measured: changing a padded position changes real ones. Causal
attention over padding at the end is fine, and so is code that shows no sign of padding.

Why: A sample's result then depends on how long the longest sample of its batch is: alone it comes out
another way, and so it does at serving time.

Bad:

```python
# build: Classifier(30, 24, 4)
# call: torch.tensor([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11], [2, 3, 0, 0, 0]])
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocabulary, width, heads, pad=0):
        super().__init__()
        self.heads, self.pad = heads, pad
        self.embed = nn.Embedding(vocabulary, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, ids):
        real = ids != self.pad
        x = self.embed(ids)
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        y = self.out(y.transpose(1, 2).reshape(b, t, c))
        return (y * real[..., None]).sum(1) / real.sum(1, keepdim=True)
```

Good:

```python
# build: Classifier(30, 24, 4)
# call: torch.tensor([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11], [2, 3, 0, 0, 0]])
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocabulary, width, heads, pad=0):
        super().__init__()
        self.heads, self.pad = heads, pad
        self.embed = nn.Embedding(vocabulary, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, ids):
        real = ids != self.pad
        x = self.embed(ids)
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :])
        y = self.out(y.transpose(1, 2).reshape(b, t, c))
        return (y * real[..., None]).sum(1) / real.sum(1, keepdim=True)
```

References:
- PyTorch documentation, torch.nn.MultiheadAttention, key_padding_mask.
- Devlin et al. 2019, BERT's attention mask over [PAD] in the reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import Severity, SubjectFacts, Violation, evidence_of, subject_rule


@subject_rule("MHA312", severity=Severity.WARNING, since="0.1")
def padding_leak(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag attention that does not hide padding which the code knows of."""
    found = facts.padding.value
    if found is None:
        return
    act = "hiding the key of" if found.zeroed else "moving"
    leak = f"{act} {found.padded}, which is padded, moves {found.reached}"
    zeroed = " (it is set to 0 before, and a key of 0 has a weight as well)" if found.zeroed else ""
    yield Violation(
        f"padding is not hidden here: {leak}{zeroed} ({found.known_by})",
        at=found.span or facts.span,
        here="attends to padded keys",
        why="a result must not depend on how long the other samples of the batch are",
        help="hide padded keys: attn_mask=real[:, None, None, :], or key_padding_mask=~real",
        evidence=evidence_of(facts.padding),
        confirm=f"witness: {act} {found.padded} moves {found.reached} by {found.largest:.1g}",
    )
