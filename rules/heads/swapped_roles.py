"""Queries, keys or values come from the wrong projection, and the right one is left unused.

What: The weights must multiply what W_V made, and q, k and v each come from a projection of their
own. Here one projection serves in the place of another, while the one that was declared for the
role never reaches the output: the weights are applied to k, or query = self.key(x). A projection
that is shared with none left over may be meant (MHA107). Keys and values in each other's place are
a warning: it rests on a norm or a rotation that the values have and the keys lack, or on names.
Also reported: the weights themselves go on to W_O, and nothing reads what they sum; and, as a
warning, an operand that is projected from another one that is projected already.

Why: The shapes fit, so nothing fails, but one of the three learned maps is missing from the model
and its parameters get no gradient.

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
        weights = scores.softmax(dim=-1)
        context = weights @ k
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
  MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O. W_Q, W_K and W_V are three different maps
  for each head.
"""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.rule_api import (
    Known,
    Label,
    Projection,
    Roles,
    Severity,
    SiteFacts,
    Violation,
    evidence_of,
    site_rule,
)


@site_rule("MHA106", severity=Severity.ERROR, since="0.1")
def swapped_roles(facts: SiteFacts) -> Iterator[Violation]:
    """Flag a projection in the place of another one that is left unused."""
    roles = facts.roles.value
    if roles.value_is == "weights":
        yield _weights_for_values(facts)
        return
    yield from _misfed(facts, roles)
    yield from _exchanged(facts, roles)
    yield from _chained(facts, roles)
    unused = _unused(facts, roles)
    if not unused:
        return
    single = len(unused) == 1 and " channels of " not in unused[0]
    left_over = f"{_listed(unused)} never {'reaches' if single else 'reach'} the output"
    if roles.value_is != "v":
        yield Violation(
            f"the weights are multiplied with {roles.value_is} instead of v: {left_over}",
            at=facts.info.at("value_path", "value"),
            here=f"sums {roles.value_is}, not v",
            why="what a head returns must pass through W_V, not through the map it compares by",
            help="context = weights @ v",
            evidence=evidence_of(facts.roles),
            confirm="roles",
        )
        return
    for shared in roles.same:
        source = _names(getattr(roles, shared[0]))
        # The key's projection is the one that is copied most, so look at the other operand.
        wrong = _starved(shared, unused) or ("v" if shared == "kv" else shared[0])
        others = shared.replace(wrong, "")
        labels = [(facts.info.spans.get(other), other) for other in others]
        yield Violation(
            f"{_listed(shared)} come from one projection, {_listed(source)}, while {left_over}",
            at=facts.info.at(*_places(wrong)),
            here=f"{wrong} is made by {_listed(source)}",
            why="q, k and v each need a learned map of their own",
            help=f"make {wrong} with its own projection; unused so far: {_listed(unused)}",
            evidence=evidence_of(facts.roles),
            labels=tuple(Label(span, f"so is {other}") for span, other in labels if span),
            confirm="roles",
        )


_WORDS = {"q": ("q", "query", "queries"), "k": ("k", "key", "keys"), "v": ("v", "value", "values")}


def _starved(shared: str, unused: tuple[str, ...]) -> str | None:
    """Return the operand that the idle projection is called after, if just one is."""
    parts = {part for name in unused for part in name.lower().replace(".", "_").split("_")}
    named = [operand for operand in shared if parts & set(_WORDS[operand])]
    return named[0] if len(named) == 1 else None


def _places(operand: str) -> tuple[str, ...]:
    return ("value_path", "v") if operand == "v" else (f"{operand}_path", operand)


def _misfed(facts: SiteFacts, roles: Roles) -> Iterator[Violation]:
    """Flag an operand that reads another role's argument while the one of its own name exists."""
    for operand, reads, named in roles.misfed:
        yield Violation(
            f"{operand} is made from the argument {reads}, not from {named} (judged from the"
            " arguments' names)",
            at=facts.info.at("call", operand),
            here=f"reads {reads}",
            why="the caller passes three tensors, and one of them takes another one's place",
            help=f"make {operand} from {named}",
            evidence=evidence_of(facts.roles),
            severity=Severity.WARNING,  # which tensor was meant is read off a name
            confirm=f"identity: {operand} depends on {reads} and not on {named}",
        )


def _weights_for_values(facts: SiteFacts) -> Violation:
    """Return the finding of weights that go on in the place of what they should sum."""
    return Violation(
        "the weights are taken for the values that they should sum: nothing reads weights @ v",
        at=facts.info.at("weights_taken", "value"),
        here="the weights, not the context",
        why="the values take no part: the output depends on how the keys are weighted alone",
        help="use the context: where a helper returns both, unpack them in its order",
        evidence=evidence_of(facts.roles),
        confirm="identity: nothing that weights @ v computes reaches the output",
    )


def _exchanged(facts: SiteFacts, roles: Roles) -> Iterator[Violation]:
    """Flag keys and values that stand in each other's place."""
    if not roles.exchanged or roles.misfed:
        return
    k, v = _listed(_names(roles.k)), _listed(_names(roles.v))
    yield Violation(
        f"keys and values are exchanged: the scores compare with {k}, and the weights sum {v}"
        f" ({roles.exchanged})",
        at=facts.info.at("exchange", "value"),
        here=f"keys through {k}, values through {v}",
        why="what a head returns must pass through W_V, not through the map it compares by",
        help="scores = q @ k.mT, context = weights @ v: in this order for library calls too",
        evidence=(*evidence_of(facts.roles), roles.exchanged),
        severity=Severity.WARNING,  # which of two equal maps was meant is not measured
        confirm=f"identity: k comes through {k}, v through {v}",
    )


def _chained(facts: SiteFacts, roles: Roles) -> Iterator[Violation]:
    """Flag an operand that is projected from another operand."""
    for operand, other in roles.chained:
        if operand + other == "vk" and _associates(facts):
            continue
        own, first = (
            _listed(_names(getattr(roles, operand))),
            _listed(_names(getattr(roles, other))),
        )
        yield Violation(
            f"{operand} is projected from {other}, which is projected already: {own} reads what"
            f" {first} made",
            at=facts.info.at(f"{operand}_path", operand),
            here=f"reads {other}",
            why=f"two linear maps in a row are one: what {first} drops, {operand} cannot have",
            help=f"{operand} = {own}(x), from the states that {first} reads",
            evidence=evidence_of(facts.roles),
            severity=Severity.WARNING,  # it computes something, and may be meant
            confirm=f"identity: {own} reads the output of {first}",
        )


def _associates(facts: SiteFacts) -> bool:
    """Return whether one head returns its context as it is.

    So a Hopfield network does, whose values are W_V of the stored patterns W_K made: W_V is its W_O.
    """
    single = isinstance(facts.dims, Known) and facts.dims.value.num_heads == 1
    output = facts.output_projection
    return single and not (isinstance(output, Known) and output.value.present)


def _unused(facts: SiteFacts, roles: Roles) -> tuple[str, ...]:
    """Return the modules of unused projections, without those that look like W_O (MHA101)."""
    match facts.output_projection:
        case Known(value=output):
            outputs = {_owner(name) for name in output.declared}
        case _:
            outputs = set()
    return tuple(dict.fromkeys(n for n in map(_owner, roles.unused) if n not in outputs))


def _names(projections: tuple[Projection, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_owner(p.name) for p in projections)) or ("the input itself",)


def _owner(name: str) -> str:
    return name.removesuffix(".weight").removesuffix(".bias")


def _listed(names: tuple[str, ...] | str) -> str:
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
