"""Find the attention sites of a recording."""

from __future__ import annotations

from collections import deque

from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.model.facts import Kind
from mha_lint.sites.axes import (
    axes_of,
    meets_own_key,
    rows_by_data,
    rows_summed,
    single,
    single_keys,
    varying,
)
from mha_lint.sites.contraction import Contraction
from mha_lint.sites.cumulated import cumulated
from mha_lint.sites.dependence import Dependence, is_tensor, op, operands, shape
from mha_lint.sites.grouping import group_heads
from mha_lint.sites.lost import with_lost_values
from mha_lint.sites.normaliser import SIGNED, SOFTMAX, Normaliser, find_normaliser
from mha_lint.sites.operand import Operand, Operands
from mha_lint.sites.origin import origin_of_weights
from mha_lint.sites.plausible import is_affinity, is_filter, is_function_of_weights
from mha_lint.sites.site import Site
from mha_lint.sites.source import Sources
from mha_lint.sites.trace import trace, varies_along
from mha_lint.sites.unmasked import unmasked
from mha_lint.sites.unrolled import few_of_each, without_barren

DATA_ERRORS = (RuntimeError, IndexError, ValueError)
"""What code that picks by its data raises on other data, and comparing results of another size."""
MAPS_PASSED = 2
"""Talking heads have one learned map over heads before the softmax and one behind."""


class Finder:
    """Find sites in one recording, measuring on one replay."""

    def __init__(self, dependence: Dependence, replay: Replay) -> None:
        """Prepare; nothing is measured yet."""
        self.dependence = dependence
        self.replay = replay
        self.recording = dependence.recording
        self.sources = Sources(dependence)
        self.operands = Operands(self.sources, replay)

    def find(self) -> list[Site]:
        """Return the sites in recorded order, per-head loops grouped into one."""
        mixing = [
            found
            for node in self.recording.graph.nodes
            if (found := self.sources.contraction(node)) is not None
            and self.sources.is_mixing(node)
            and node in self.dependence.live
        ]
        tried: dict[Node, Site | None] = {}

        def holds(value: Contraction) -> bool:
            if value.node not in tried:
                tried[value.node] = self._tried(value)
            return tried[value.node] is not None

        normalised: dict[Node, Site] = {}
        bare: dict[Node, Site] = {}
        for value in without_barren(mixing, lambda c: c.node, holds):
            site = tried[value.node] if holds(value) else None
            if site is None:
                continue
            (
                bare
                if site.normaliser.element != "softmax" and site.normaliser.element != "coupled"
                else normalised
            )[value.node] = site
        taken = {
            n
            for s in normalised.values()
            if s.score is not None
            for n in (s.context, s.scores, *s.extra)
        }
        for node, site in bare.items():
            if node not in taken and site.scores not in taken:
                normalised[node] = site
                taken |= {node, site.scores}
        scores = {s.scores for s in normalised.values() if s.score is not None}
        kept = [
            s for n, s in normalised.items() if n not in scores and not self._inside(s, normalised)
        ]
        kept += with_lost_values(self.dependence, self.sources, self.replay, self._site_at, kept)
        kept += cumulated(self.dependence, self.sources, self.operands, self.replay, mixing, kept)
        kept.sort(key=lambda s: self.dependence.order[s.context])
        return group_heads(self.dependence, kept)

    def _tried(self, value: Contraction) -> Site | None:
        try:
            return self._site_at(value)
        except DATA_ERRORS:
            if not self.dependence.picks:
                raise
            return None  # the code cannot be run on moved data: nothing can be measured there

    def _inside(self, site: Site, sites: dict[Node, Site]) -> bool:
        """Return whether the "context" is only a sum that normalises another site's weights."""
        return any(
            other.scores is site.scores
            and other is not site
            and site.context in self.dependence.ancestors([other.weights])
            for other in sites.values()
        )

    # --- one candidate -------------------------------------------------------------------------

    def _site_at(self, value: Contraction) -> Site | None:
        for weights_left in (True, False):
            behind = self._scores_behind(value.side(weights_left)[0])
            for score, extra in few_of_each(behind, lambda one: one[0].node, value.node):
                site = self._with_score(value, weights_left, score, extra)
                if site is not None:
                    return site
        for weights_left in (True, False):
            for score in self._learned_scores(value.side(weights_left)[0]):
                site = self._with_score(value, weights_left, score, ())
                if site is not None:
                    return site
        for weights_left in (True, False):
            site = self._without_score(value, weights_left)
            if site is not None:
                return site
        return None

    def _scores_behind(self, weights: Node) -> list[tuple[Contraction, tuple[Node, ...]]]:
        """Return the score contractions behind `weights`, each with those added to it."""
        found: list[Contraction] = []
        added: list[Node] = []
        reached = weights in self.sources.mixed_by_layout
        if not reached and weights not in self.sources.behind_softmax(SOFTMAX):
            return []  # the whole way back to the inputs would be searched in vain
        front = deque([(weights, 0, False)])
        seen: set[Node] = set()
        while front:
            node, maps, normalised = front.popleft()
            if node in seen or not self.dependence.on_data(node):
                continue
            seen.add(node)
            contraction = self.sources.contraction(node)
            if contraction is not None and self.sources.is_mixing(node):
                # A map over heads (talking heads) may stand between scores and weights, but only
                # beside a normaliser: without one it is the next layer's projection.
                if maps == 0 or normalised:
                    found.append(contraction)
                continue
            if self.sources.learned_map(node) is not None:
                added.append(node)
                maps += 1
                if maps > MAPS_PASSED:
                    continue
            normalised = normalised or op(node) in SOFTMAX
            front.extend((n, maps, normalised) for n in operands(node))
        found.sort(key=lambda c: self.dependence.order[c.node])
        return [(c, (*(o.node for o in found if o is not c), *added)) for c in found]

    def _learned_scores(self, weights: Node) -> list[Contraction]:
        """Return products of learned queries with data behind `weights` (Perceiver, PMA).

        They count as queries, and not as a layer's weight, where they are projected or have heads.
        """
        softmax = self._softmax_behind(weights)
        front = list(operands(softmax)) if softmax is not None else [weights]
        seen: set[Node] = set()
        while front:
            node = front.pop(0)
            if node in seen or not self.dependence.on_data(node):
                continue
            seen.add(node)
            found = self.sources.contraction(node)
            if found is None:
                front += operands(node)
                continue
            for side in (found.left, found.right):
                origins = self.sources.of(side) if self.dependence.learned_only(side) else []
                if any(s.kind == "projection" for s in origins) or (origins and found.shared):
                    return [found]
        return []

    def _with_score(
        self, value: Contraction, weights_left: bool, score: Contraction, extra: tuple[Node, ...]
    ) -> Site | None:
        weights, weight_labels = value.side(weights_left)
        normaliser = find_normaliser(self.dependence, self.replay, score.node, weights)
        to_logits = trace(self.replay, score.node, normaliser.logits)
        if not bool(to_logits.responds.any()):
            return None  # it only picks which scores are computed
        last = normaliser.later[-1] if normaliser.later else normaliser.weights
        to_weights = trace(self.replay, last, weights)
        summed = [i for i, x in enumerate(weight_labels) if x is not None and x in value.summed]
        if normaliser.element == "coupled" and is_filter(self.replay, last, weights, summed):
            return None
        if is_function_of_weights(self.replay, last, weights):
            return None
        if is_affinity(self.sources, score, normaliser, to_logits):
            return None
        whole = unmasked(self.dependence, self.replay, score.node, normaliser.logits, to_logits)
        origin = origin_of_weights(self.replay, normaliser, whole, to_weights)
        if origin is None:
            return None
        along = varying(origin, weight_labels, value.summed)
        left, right = set(score.free(True)), set(score.free(False))
        labels = {x for a in along if (x := score.out_labels[a]) is not None}
        alone = not labels
        if alone and self._all_ones(normaliser):
            labels = single_keys(score, shape(self.recording, score.node))
        if not labels:
            return None
        if labels & left and not labels & right:
            key_left = True
        elif labels & right and not labels & left:
            key_left = False
        else:
            return None
        if score.node in self.dependence.ancestors([value.side(not weights_left)[0]]):
            return None  # an entropy or a divergence of the weights, no values
        q, k = (self._score_operand(score, left) for left in (not key_left, key_left))
        k = rows_summed(k, frozenset(labels), score.side(key_left)[1])
        v = self._value_operand(value, weights_left)
        kind = self._kind(normaliser, q, k, v)
        if kind is None or (alone and not meets_own_key(q, k, self.replay)):
            return None
        rows, keys = self._out_axes(score, q, not key_left), self._out_axes(score, k, key_left)
        groups = tuple(a for a in range(len(score.out_labels)) if a not in rows and a not in keys)
        reached = tuple(e for e in extra if e not in self.dependence.ancestors([q.node, k.node]))
        return Site(
            kind, score, key_left, value, weights_left, normaliser, to_logits, to_weights, origin,
            q, k, v, rows, keys, groups, reached,
        )  # fmt: skip

    def _all_ones(self, normaliser: Normaliser) -> bool:
        """Return whether the weights are those of one key for each query."""
        if normaliser.element != "softmax":
            return False
        return bool((self.replay.base(normaliser.weights) == 1).all())

    def unmasked_index(self, site: Site) -> tuple[Tensor, ...]:
        """Return, per axis of the scores, the index that each element of the logits came from."""
        assert site.to_logits is not None
        logits, traced = site.normaliser.logits, site.to_logits
        return unmasked(self.dependence, self.replay, site.scores, logits, traced).index

    def _without_score(self, value: Contraction, weights_left: bool) -> Site | None:
        """Additive attention and pooling: a softmax over positions, no product of q and k."""
        weights, labels = value.side(weights_left)
        softmax = self._softmax_behind(weights)
        if softmax is None:
            return None
        if softmax in self.dependence.ancestors([value.side(not weights_left)[0]]):
            return None
        logits = operands(softmax)[0]
        later = find_normaliser(self.dependence, self.replay, logits, weights).later
        to_weights = trace(self.replay, softmax, weights)
        if not to_weights.all_clean:
            return None
        origin = to_weights.index
        along = varying(origin, labels, value.summed)
        v = self._value_operand(value, weights_left)
        if not v.position_axes or not along or v.source is None or v.learned:
            return None
        if v.source.kind == "context":
            return None  # q (k^T v): linear attention, whose feature map happens to be a softmax
        base = self.replay.base(logits)
        rest = [a for a in range(base.dim()) if a not in along and base.shape[a] > 1]
        free = value.free(weights_left)
        rows = tuple(a for a in varying(origin, labels, frozenset(free)) if a in rest)
        pooled = not rows or not self._follows_data(logits, rows)
        kind = Kind.POOLING if pooled else Kind.SELF
        groups = tuple(a for a in range(base.dim()) if a not in along and a not in rows)
        normaliser = Normaliser(logits, softmax, "softmax", later)
        return Site(
            kind, None, False, value, weights_left, normaliser, None, to_weights, origin,
            None, None, v, rows, tuple(sorted(along)), groups,
        )  # fmt: skip

    def _softmax_behind(self, weights: Node) -> Node | None:
        front, seen = [weights], set()
        while front:
            node = front.pop(0)
            if node in seen:
                continue
            seen.add(node)
            if op(node) == "softmax":
                empty = 0 in shape(self.recording, node)  # the call is too short for it
                return node if self.dependence.on_data(node) and not empty else None
            if self.sources.at(node) is None and is_tensor(self.recording, node):
                front += [n for n in operands(node) if self.dependence.on_data(n)]
        return None

    def _follows_data(self, logits: Node, rows: tuple[int, ...]) -> bool:
        """Return whether different rows of `logits` depend on different data, not on weights only."""
        above = self.dependence.ancestors([logits])
        placeholders = [p for p in self.recording.placeholders if p in above]
        base = self.replay.base(logits)
        for placeholder in placeholders:
            value = self.replay.base(placeholder)
            if not value.is_floating_point() or value.dim() < 2:
                continue
            for axis in range(value.dim() - 1):
                moved_in = value.clone()
                moved_in.select(axis, 0).add_(0.31)
                (moved,) = self.replay.run([logits], {placeholder: moved_in})
                changed = ((moved - base).abs() > 1e-12).long()
                if any(varies_along(changed, row) for row in rows):
                    return True
        return False

    # --- operands ------------------------------------------------------------------------------

    def _score_operand(self, score: Contraction, left: bool) -> Operand:
        node, labels = score.side(left)
        features = axes_of(labels, score.summed)
        free = axes_of(labels, frozenset(score.free(left)))
        groups = tuple(i for i in range(len(labels)) if i not in features and i not in free)
        operand = self.operands.describe(node, free, features, groups)
        return rows_by_data(operand)

    def _value_operand(self, value: Contraction, weights_left: bool) -> Operand:
        node, labels = value.side(not weights_left)
        rows = axes_of(labels, value.summed)
        features = axes_of(labels, frozenset(value.free(not weights_left)))
        groups = tuple(i for i in range(len(labels)) if i not in features and i not in rows)
        return self.operands.describe(node, rows, features, groups)

    def _out_axes(self, score: Contraction, operand: Operand, left: bool) -> tuple[int, ...]:
        _, labels = score.side(left)
        wanted = {labels[a] for a in operand.rows}
        return tuple(i for i, x in enumerate(score.out_labels) if x is not None and x in wanted)

    def _kind(self, normaliser: Normaliser, q: Operand, k: Operand, v: Operand) -> Kind | None:
        """Tell attention over positions from attention over channels, gates and plain algebra."""
        if q.source is None or k.source is None or v.source is None:
            return None
        projected = all(o.source is not None and o.source.kind == "projection" for o in (q, k, v))
        if normaliser.element in SIGNED and not projected:
            return None  # an affinity that passes through an activation is no weight
        normalised = normaliser.element in ("softmax", "coupled")
        over_data = [bool(o.position_axes) or single(o, self.replay) for o in (q, k)]
        sums_positions = [any(o.varies[a].data for a in o.features) for o in (q, k)]
        over_channels = [any(o.varies[a].channels for a in o.rows) for o in (q, k)]
        if any(sums_positions) and not any(o.position_axes for o in (q, k)):
            if normalised:
                return Kind.CHANNEL
            learned = all(o.source is not None and o.source.kind == "projection" for o in (q, k))
            return Kind.LINEAR if learned else None
        if not k.holds_data or not v.holds_data:
            return None
        if q.learned:
            of_heads = any(k.varies[a].channels for a in k.groups)
            return Kind.POOLING if normalised and of_heads else None
        if not normalised and not q.holds_data and not projected:
            return None
        if not normalised:
            trusted = ("projection", "input", "opaque")
            if not (
                all(over_data) and all(o.source and o.source.kind in trusted for o in (q, k, v))
            ):
                return None
            if not k.position_axes or not v.position_axes:
                return None
        if (
            all(over_data)
            or all(over_channels)
            or (normalised and any(o.position_axes for o in (q, k)))
            or (normalised and meets_own_key(q, k, self.replay))
        ):
            return self._self_or_cross(q, k)
        return None

    def _self_or_cross(self, q: Operand, k: Operand) -> Kind:
        assert q.source is not None and k.source is not None
        one, other = q.source.reads or q.source.node, k.source.reads or k.source.node
        read = {s.reads or s.node for s in k.sources if s.kind != "learned"}
        if one in read:
            return Kind.SELF  # a cache beside it changes nothing
        inputs = self.dependence.inputs_of
        if inputs(one) != inputs(other):
            return Kind.CROSS
        # Both from one input: self attention, unless one is a narrower view of it (a class token).
        return Kind.SELF
