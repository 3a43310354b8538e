"""Cross-attention does not read the source that is handed to it.

What: In cross-attention the queries come from the decoder's states, and the keys and values from
the encoder's memory. Here an argument that by its name is such a source has no influence on the
output, while every attention computed is self-attention. What an argument is for is judged from its
name: hence a warning. So is the reverse: the source asks and the states answer,
told by their names or by the residual, which adds the result to the states that answered.

Why: The decoder never sees the encoder: it becomes a language model that ignores its input.

Bad:

```python
# build: CrossAttention(24, 4)
# call: torch.randn(3, 7, 24), torch.randn(3, 11, 24)
import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x, memory):
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
# build: CrossAttention(24, 4)
# call: torch.randn(3, 7, 24), torch.randn(3, 11, 24)
import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(self, x, memory):
        q = self.split(self.query(x))
        k = self.split(self.key(memory))
        v = self.split(self.value(memory))
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.output(context.transpose(1, 2).flatten(2))
```

References:
- Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3 (Applications of Attention in our
  Model): "the queries come from the previous decoder layer, and the memory keys and values come
  from the output of the encoder".
- PyTorch documentation, torch.nn.MultiheadAttention. Arguments query, key and value.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Kind,
    Known,
    Severity,
    SiteFacts,
    SubjectFacts,
    Violation,
    evidence_of,
    subject_rule,
)

_CROSS_WORDS = ("cross", "enc", "mem", "src", "source", "context")


@subject_rule("MHA112", severity=Severity.WARNING, since="0.1")
def wrong_cross_source(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag a source argument that is ignored while all attention is self-attention, or asks itself."""
    yield from _reversed(facts)
    ignored = [one for one in facts.unused_inputs.value if one.looks_like_source]
    if not ignored or not facts.sites:
        return
    if any(site.info.kind is not Kind.SELF or _swapped(site) for site in facts.sites):
        return
    site = _likeliest(facts.sites)
    names = " and ".join(one.name for one in ignored)
    encoded = all(one.encoded for one in ignored)
    judged = "it is encoded, and the result dropped" if encoded else "judged from the argument name"
    yield Violation(
        f"{names} {'is' if len(ignored) == 1 else 'are'} never read: keys and values come from"
        f" the same states as the queries ({judged})",
        at=site.info.at("call", "k", "scores"),
        here=f"should read {names}",
        why="cross-attention without its source is self-attention, and the source is ignored",
        help="pass what was made of it on: decoder(x, memory)"
        if encoded
        else f"make keys and values from the source: k = self.key({ignored[0].name})",
        evidence=evidence_of(facts.unused_inputs),
        confirm=f"identity: no output depends on {names}",
    )


def _swapped(site: SiteFacts) -> bool:
    """Return whether MHA106 says already that an operand comes through another one's projection."""
    match site.roles:
        case Known(value=roles):
            return bool(roles.same and roles.unused)
    return False


def _reversed(facts: SubjectFacts) -> Iterator[Violation]:
    """Flag cross-attention whose queries come from the source and whose keys do not."""
    for site in facts.sites:
        if site.info.kind is not Kind.CROSS:
            continue
        match site.roles:
            case Known(value=roles) if roles.q and roles.k:
                q, k = roles.q[0].source, roles.k[0].source
            case _:
                continue
        if not q or not k:
            continue
        added = set(roles.residual)
        answered = bool(added) and not added & set(q) and added <= set(k)
        if not answered and (not all(map(_is_source, q)) or any(map(_is_source, k))):
            continue
        if not answered and not any(name.lower() in _STATES for name in k):
            continue
        if any(_answers(other, q, k) for other in facts.sites):
            continue  # the source asks first, and the states then ask what it gathered
        yield Violation(
            f"the queries come from {' and '.join(q)} and the keys from {' and '.join(k)}: the other"
            " way round is meant "
            + (
                f"(the result is added to what was made of {' and '.join(k)})"
                if answered
                else "(judged from the arguments' names)"
            ),
            at=site.info.at("call", "q", "scores"),
            here=f"asks {' and '.join(k)}",
            why="in cross-attention the target's states ask and the source answers",
            help=f"make queries from {k[0]}, keys and values from {q[0]}",
            evidence=evidence_of(site.roles),
            confirm=f"identity: the queries depend on {' and '.join(q)} alone",
        )


def _answers(site: SiteFacts, source: tuple[str, ...], states: tuple[str, ...]) -> bool:
    """Return whether `states` ask `source`, or what was made of it, at `site`."""
    match site.roles:
        case Known(value=roles) if roles.q and roles.k:
            asks, asked = roles.q[0].source, roles.k[0].source
            return set(states) & set(asks) != set() and set(source) <= set(asked)
    return False


_SOURCES = ("memory", "mem", "encoder", "enc", "src", "source", "context", "ctx")
_STATES = (
    "tgt",
    "target",
    "x",
    "query",
    "y",
    "decoder_states",
    "dec",
    "decoder",
    "hidden",
    "states",
)


def _is_source(name: str) -> bool:
    parts = name.lower().split("_")
    return any(part in _SOURCES or part.startswith("enc") for part in parts)


def _likeliest(sites: tuple[SiteFacts, ...]) -> SiteFacts:
    """Return the site that by its name should read the source, else the last one."""
    for site in sites:
        if any(word in site.info.module.lower() for word in _CROSS_WORDS):
            return site
    return sites[-1]
