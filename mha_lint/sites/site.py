"""One attention computation inside a recording."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor
from torch.fx import Node

from mha_lint.model.facts import Kind
from mha_lint.sites.contraction import Contraction
from mha_lint.sites.normaliser import Normaliser
from mha_lint.sites.operand import Operand
from mha_lint.sites.trace import Trace


@dataclass(frozen=True, slots=True)
class Site:
    """Score contraction -> normaliser -> value contraction, with operands and what lies between.

    ``score`` is None where scores come without a product of queries and keys (additive attention).
    ``to_logits`` traces scores -> normaliser input, ``to_weights`` normaliser output -> the operand
    that meets V. ``origin[a]`` has the shape of that operand and holds, per axis ``a`` of the
    scores (of the logits when ``score`` is None), the index each weight came from.
    ``row_axes``, ``key_axes``, ``group_axes``: axes of the scores. ``head_axes`` of the scores are
    the groups that are channels of q's source. ``extra``: further contractions added to the scores.
    ``members``: the sites of the single heads, where a loop or list computes them one by one.
    ``instead``: what reads the weights in the place of a context that nothing reads.
    """

    kind: Kind
    score: Contraction | None
    key_left: bool
    value: Contraction
    weights_left: bool
    normaliser: Normaliser
    to_logits: Trace | None
    to_weights: Trace
    origin: tuple[Tensor, ...]
    q: Operand | None
    k: Operand | None
    v: Operand
    row_axes: tuple[int, ...]
    key_axes: tuple[int, ...]
    group_axes: tuple[int, ...]
    extra: tuple[Node, ...] = ()
    members: tuple[Site, ...] = field(default=())
    instead: Node | None = None

    @property
    def scores(self) -> Node:
        """Return the node that holds the scores."""
        return self.score.node if self.score is not None else self.normaliser.logits

    @property
    def weights(self) -> Node:
        """Return the operand of the value contraction that holds the weights."""
        return self.value.side(self.weights_left)[0]

    @property
    def context(self) -> Node:
        """Return the node of the value contraction's result."""
        return self.value.node

    @property
    def all(self) -> tuple[Site, ...]:
        """Return the members, or the site itself."""
        return self.members or (self,)
