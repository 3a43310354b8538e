"""Query heads meet other key/value heads than in the models whose weights are used.

What: With fewer key/value heads than query heads, each of them serves several query heads. Llama and
its relatives, and PyTorch's enable_gqa, let neighbours share: heads 0 to g-1 meet the first one
(repeat_interleave, or expand and reshape). Here every n-th query head shares one (repeat, or an axis
of groups in front). Trained from scratch both are equally good, so this is a warning: only with
weights of such a model is it wrong. Say `--expect gqa=tiled` if it is meant, `--expect gqa=blocked` if
the weights decide: then it is an error. If keys and values are shared in different ways it is an
error in any case.

Why: With weights that were trained for the other order each query head looks into the keys of
another group, and the model's output is noise.

Bad:

```python
# build: GroupedAttention(32, 4, 2)
# call: torch.randn(3, 7, 32)
import torch.nn.functional as F
from torch import nn


class GroupedAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, kv_heads * self.size)
        self.to_v = nn.Linear(width, kv_heads * self.size)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q = self.to_q(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k = self.to_k(x).unflatten(-1, (self.kv_heads, self.size)).transpose(1, 2)
        v = self.to_v(x).unflatten(-1, (self.kv_heads, self.size)).transpose(1, 2)
        share = self.heads // self.kv_heads
        k, v = k.repeat(1, share, 1, 1), v.repeat(1, share, 1, 1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

Good:

```python
# build: GroupedAttention(32, 4, 2)
# call: torch.randn(3, 7, 32)
import torch.nn.functional as F
from torch import nn


class GroupedAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, kv_heads * self.size)
        self.to_v = nn.Linear(width, kv_heads * self.size)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q = self.to_q(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k = self.to_k(x).unflatten(-1, (self.kv_heads, self.size)).transpose(1, 2)
        v = self.to_v(x).unflatten(-1, (self.kv_heads, self.size)).transpose(1, 2)
        share = self.heads // self.kv_heads
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))
```

References:
- Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
  Checkpoints", section 2.2 and figure 2: neighbouring query heads form a group.
- PyTorch documentation, torch.nn.functional.scaled_dot_product_attention, enable_gqa: keys and values
  are repeated by repeat_interleave along the axis of heads.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    HeadGroups,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA511", severity=Severity.WARNING, since="0.1")
def gqa_head_mapping(facts: SiteFacts) -> Iterator[Violation]:
    """Flag query heads that meet another key/value head than is usual, or than was stated."""
    groups = facts.head_groups.value
    if groups.num_kv_heads in (1, groups.num_heads) or groups.repeat is not None:
        return
    if set(groups.keys) == set(groups.values) and groups.keys != groups.values:
        yield _apart(facts, groups)
        return
    contract = facts.contract
    said = contract.entry("gqa")
    if said is not None and not said.stated and groups.order == said.value:
        return  # its own text describes the order that it has
    expected = "tiled" if contract.states("gqa", "tiled") else "blocked"
    if groups.order == expected:
        return
    stated = contract.states("gqa", expected)
    share = groups.num_heads // groups.num_kv_heads
    due = ", ".join(str(i // share if expected == "blocked" else i % groups.num_kv_heads)
                    for i in range(groups.num_heads))  # fmt: skip
    unsure = "" if stated else ": weights of Llama-like models need neighbours to share one"
    yield Violation(
        f"query heads 0 to {groups.num_heads - 1} meet the key/value heads"
        f" {', '.join(map(str, groups.keys))}{unsure}",
        at=groups.span or facts.info.at("k", "scores"),
        here="shares the key/value heads in this order",
        why="with weights trained for the other order each query looks into the keys of another group",
        help=f"for {due}: "
        + (
            f"repeat_interleave({share}, dim=head axis)"
            if expected == "blocked"
            else f"repeat along the head axis {share} times"
        )
        + ("" if stated else "; --expect gqa=tiled if it is meant"),
        evidence=evidence_of(facts.head_groups),
        severity=Severity.ERROR if stated else None,
        confirm="identity: the channels that each head reads were traced to the projections",
    )


def _apart(facts: SiteFacts, groups: HeadGroups) -> Violation:
    keys, values = (", ".join(map(str, numbers)) for numbers in (groups.keys, groups.values))
    regular = groups.order == "blocked"
    return Violation(
        f"query heads 0 to {groups.num_heads - 1} meet the key heads {keys}, but the value heads"
        f" {values}",
        at=(groups.value_span if regular else groups.span) or facts.info.at("v", "value"),
        here="shares the heads in another order",
        why="weights from one group's keys sum another group's values",
        help="repeat keys and values in the same way",
        evidence=evidence_of(facts.head_groups),
        severity=Severity.ERROR,
        confirm="identity: the channels that each head reads were traced to the projections",
    )
