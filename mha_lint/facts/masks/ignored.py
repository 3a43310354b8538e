"""Masks that are given or built and hide nothing."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.capture import CaptureError, record
from mha_lint.capture.names import RANDOM
from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.declared import unread_triangles
from mha_lint.facts.masks.forms import (
    HIDES,
    Form,
    another_mask,
    built_form,
    form_of,
    hidden_pairs,
    hides_already,
    sites_of_mask,
)
from mha_lint.facts.masks.handover import not_handed_on, not_used_beside
from mha_lint.facts.masks.joins import apart
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.origins import PASSING, pattern_of
from mha_lint.facts.masks.signs import tells_kinds
from mha_lint.facts.masks.steps import steps_of
from mha_lint.facts.masks.streams import is_nameless, of_absent_states
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable
from mha_lint.model.mask_facts import IgnoredMask
from mha_lint.sites.dependence import is_number, is_tensor, op, operands, shape
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

JOINS = frozenset(
    ["masked_fill", "where", "setitem", "index_put", "add", "sub", "mul", "masked_scatter"]
)
CHOSEN = frozenset(["argsort", "sort", "topk", "gather", "scatter", "one_hot", "multinomial"])
"""What picks positions: such a mask tells what was picked, and hides nothing."""


def ignored_masks(subject: Subject, bench: Bench) -> Fact[tuple[IgnoredMask, ...]]:
    """Return the masks of `subject` without any effect on attention."""
    return _measured(bench, subject)


@unless_data_decides
def _measured(bench: Bench, subject: Subject) -> Fact[tuple[IgnoredMask, ...]]:
    if not bench.sites:
        return NotApplicable("no attention was found")
    search = _Search(bench, subject)
    thrown = search.discarded()
    built = search.built(thrown)
    given = search.unread([*thrown, *built])
    kept = unread_triangles(bench) if not thrown and not built else []
    found = tuple(dict.fromkeys((*thrown.values(), *built.values(), *given, *kept)))
    return Known(found, "no score and no weight of the recorded call depends on it")


class _Search:
    """Looks for masks in one recording that reach no attention."""

    def __init__(self, bench: Bench, subject: Subject) -> None:
        self.bench = bench
        self.subject = subject
        self.recording = bench.recording
        self.dependence = bench.dependence
        self.members = [m for s in bench.sites for m in s.all]
        self.attended = self.dependence.ancestors([m.weights for m in self.members])
        self.states = self.dependence.ancestors([m.context for m in self.members])
        self.data = self._data()

    def _data(self) -> set[Node]:
        """Return the nodes that hold states: numbers that parameters or float arguments are in."""
        floats = [
            p
            for p in self.recording.placeholders
            if p in self.states and is_number(self.recording, p)
        ]
        parameters = [n for n in self.states if "parameter" in n.meta]
        below = self.dependence.descendants([*floats, *parameters])
        return {n for n in below if is_number(self.recording, n)}

    # --- the result of a fill that nothing reads ------------------------------------------------

    def discarded(self) -> dict[Node, IgnoredMask]:
        """Return masked copies of the scores or states that nothing reads."""
        found: dict[Node, IgnoredMask] = {}
        for node in self.recording.graph.nodes:
            if node in self.dependence.live or op(node) not in JOINS:
                continue
            if not is_number(self.recording, node) or self._stems_from(node, found):
                continue
            mask = self._mask_of(node)
            if mask is not None and not self._hidden_anyway(mask, node):
                value = self.recording.values[mask]
                found[node] = IgnoredMask(
                    "",
                    "discarded",
                    tuple(value.shape),
                    _type(value),
                    tuple(sorted(self.dependence.inputs_of(mask))),
                    True,
                    span_of(node),
                    span_of(mask),
                )
        return found

    def _stems_from(self, node: Node, found: dict[Node, IgnoredMask]) -> bool:
        return bool(self.dependence.ancestors([node]) & found.keys())

    def _mask_of(self, node: Node) -> Node | None:
        """Return the mask that a dead `node` joins to live states, None where it does not mask."""
        data = [n for n in operands(node) if n in self.data and self._is_live(n)]
        sides = [n for n in operands(node) if n not in self.data and is_tensor(self.recording, n)]
        if len(data) != 1 or not sides:
            return None
        before, after = self.recording.values[data[0]], self.recording.values[node]
        side = max(sides, key=lambda n: self.recording.values[n].numel())
        value = self.recording.values[side]
        if before.shape != after.shape or value.numel() < 2 or self._drawn(side):
            return None
        changed = before != after
        if op(node) in ("add", "sub"):
            changed = after <= -HIDES
        elif op(node) == "mul":
            changed = (after == 0) & (before != 0)
        if not bool(changed.any()) or bool(changed.all()):
            alike = op(node) == "masked_fill" and bool((value == value.flatten()[0]).all())
            return side if alike and self.dependence.on_data(side) else None  # as made up
        return side if form_of(value, "mask") is not None or op(node) == "setitem" else None

    def _is_live(self, node: Node) -> bool:
        """Return whether `node` is, but for its layout, a tensor on the way to some attention."""
        while node not in self.dependence.live and op(node) in PASSING:
            node = operands(node)[0]
        return node in self.dependence.live and node in self.states

    def _hidden_anyway(self, mask: Node, node: Node) -> bool:
        """Return whether the sites behind a discarded join hide what its mask would."""
        value = self.recording.values[mask]
        return bool(value.any()) and any(self._hides(m, value) for m in self.members)

    def _hides(self, member: Site, value: Tensor) -> bool:
        known = hidden_pairs(self.bench, member)
        if known is None:
            return False
        hidden, pairs = known
        return hides_already(self.bench, member, value, hidden, pairs)

    # --- built, and not passed on ---------------------------------------------------------------

    def built(self, thrown: dict[Node, IgnoredMask]) -> dict[Node, IgnoredMask]:
        """Return masks that were made in the call and that nothing but an output reads."""
        above = self.dependence.ancestors(thrown)
        used = self._inputs_of_masks(self.bench.sites)
        candidates: dict[Node, IgnoredMask] = {}
        for node in self.recording.graph.nodes:
            if node.op != "call_function" or node in above or node in self.attended:
                continue
            found = self._built(node, used)
            if found is not None:
                candidates[node] = found
        lasts = [
            n
            for n in candidates
            if not any(m is not n and m in self.dependence.descendants([n]) for m in candidates)
        ]
        return {n: candidates[n] for n in lasts}

    def _built(self, node: Node, used: frozenset[str]) -> IgnoredMask | None:
        value = self.recording.values.get(node)
        if not isinstance(value, Tensor) or value.dim() < 2 or node in self.data:
            return None
        if "lowered" in node.meta or self._is_library(node) or self._lies_on_channels(node):
            return None
        if pattern_of(self.bench, node).op == "placeholder":
            return None  # an argument as it came: see `unread`
        form = built_form(value, given=self._from_whole_numbers(node))
        if form is None or self._drawn(node):
            return None
        inputs = self.dependence.inputs_of(node)
        if inputs and all(of_absent_states(self.subject, n) for n in inputs):
            return None
        if inputs & used or not self._about_keys(node):
            return None  # the attention hears of it otherwise, or it is about something else
        below = {n for n in self.dependence.descendants([node]) if n.op == "call_function"} - {node}
        if below & self.data or any(self._is_single(n) or op(n) in CHOSEN for n in below):
            return None
        if any(self._lies_on_channels(n) for n in below) or tells_kinds(self.bench, node):
            return None
        sites = self._waiting(
            sites_of_mask(self.bench, value, form, " ".join(inputs)), " ".join(inputs)
        )
        if not sites or any(self._hides(m, value) for s in sites for m in s.all[:1]):
            return None
        first = sites[0].all[0]
        if apart(node, first.scores) and all(self._chosen(s.all[0], value) for s in sites):
            return None
        return IgnoredMask(
            "",
            "built",
            tuple(value.shape),
            _type(value),
            tuple(sorted(inputs)),
            True,
            not_used_beside(first.normaliser.weights, node),
            span_of(node),
        )

    def _lies_on_channels(self, node: Node) -> bool:
        """Return whether a mask has a last axis of one: then it chooses states, and hides no keys."""
        value = self.recording.values.get(node)
        return isinstance(value, Tensor) and value.dim() >= 2 and value.shape[-1] == 1

    def _chosen(self, member: Site, value: Tensor) -> bool:
        """Return whether a site has got another mask of the same kind: one of those for each kind of
        layer, of which a wider and a narrower one (a triangle and a window in it) hide much alike.
        """
        try:
            levels = levels_of(self.bench, member)
        except NotArrangedError:
            return False
        queries, keys = levels.hidden.shape[1:]
        if [n for n in value.shape if n != 1] != [queries, keys]:
            return False
        if bool((levels.group.queries != torch.arange(queries)).any()):
            return False
        shared = levels.hidden.all(0)
        truths = value.reshape(queries, keys)
        truths = truths if truths.dtype == torch.bool else truths <= -HIDES
        return bool(shared.any()) and any(
            bool(marks.any())
            and not (bool((shared & ~marks).any()) and bool((marks & ~shared).any()))
            for marks in (truths, ~truths)
        )

    def _waiting(self, sites: list[Site], name: str) -> list[Site]:
        """Leave out cross-attention that has got another argument's mask: the two were mixed up.

        Where sequences are equally long, a mask whose name tells none of them may be that one's as
        well, whatever site it fits.
        """
        told = [
            s
            for s in self.bench.sites
            if s.kind is Kind.CROSS and self._inputs_of_masks([s]) - {name}
        ]
        if told and is_nameless(name) and all(_is_square(self.bench, s) for s in [*sites, *told]):
            return []
        return [s for s in sites if not any(s is t for t in told)]

    def _from_whole_numbers(self, node: Node) -> bool:
        """Return whether a mask is made from arguments, and none of them is of floats."""
        above = self.dependence.ancestors([node])
        given = [p for p in self.recording.placeholders if p in above]
        return bool(given) and not any(is_number(self.recording, p) for p in given)

    def _about_keys(self, node: Node) -> bool:
        """Return whether a mask is made from what the states are made from, from masks and lengths."""
        above = self.dependence.ancestors([node])
        named = zip(self.recording.placeholders, self.recording.input_names, strict=True)
        return all(
            p in self.states
            or form_of(self.recording.values[p], name) is not None
            or self.recording.values[p].dim() == 1
            for p, name in named
            if p in above
        )

    def _is_library(self, node: Node) -> bool:
        """Return whether a module of torch's own made `node`, for some test of its own."""
        module: Any = self.recording.module
        path = str(node.meta.get("module", ""))
        owner = module.get_submodule(path) if isinstance(module, nn.Module) and path else module
        return type(owner).__module__.startswith("torch.")

    def _inputs_of_masks(self, sites: list[Site]) -> frozenset[str]:
        """Return the names of the inputs that masks of `sites` are made from."""
        members = [m for s in sites for m in s.all]
        sides = [s for m in members for step in steps_of(self.bench, m) for s in step.sides]
        return frozenset().union(
            *(self.dependence.inputs_of(s) for s in sides if s not in self.data)
        )

    def _is_single(self, node: Node) -> bool:
        """Return whether Python may read the value of `node`, as ``if mask.any()`` does."""
        value = self.recording.values.get(node)
        return not isinstance(value, Tensor) or value.numel() < 2

    def _drawn(self, node: Node) -> bool:
        above = self.dependence.ancestors([node])
        return any(op(n) in RANDOM | CHOSEN for n in above)

    # --- arguments that nothing reads -----------------------------------------------------------

    def unread(self, told: list[Node]) -> list[IgnoredMask]:
        """Return the arguments that are masks and that no output depends on."""
        above = self.dependence.ancestors(told)
        found: list[IgnoredMask] = []
        for node, name, value in zip(
            self.recording.placeholders,
            self.recording.input_names,
            self.recording.inputs,
            strict=True,
        ):
            if node in self.dependence.live or node in above:
                continue
            form = None if of_absent_states(self.subject, name) else form_of(value, name)
            sites = (
                self._waiting(sites_of_mask(self.bench, value, form, name), name) if form else []
            )
            if form is None or not sites or not self._without_effect(name, value, form):
                continue
            if any(self._hides(s.all[0], value) for s in sites):
                continue
            found.append(
                IgnoredMask(
                    name,
                    "unread",
                    tuple(value.shape),
                    _type(value),
                    (name,),
                    form.named,
                    not_handed_on(sites[0].all[0].normaliser.weights, name),
                    None,
                )
            )
        return found

    def _without_effect(self, name: str, value: Tensor, form: Form) -> bool:
        """Return whether the same call with another mask gives the same outputs.

        What Python reads of a tensor (``lengths.tolist()``) leaves no trace in the recording.
        """
        subject = self.subject
        args, kwargs = list(subject.args), dict(subject.kwargs)
        other = another_mask(value, form)
        places: list[Any] = [
            i for i, n in enumerate(subject.argument_names[: len(args)]) if n == name
        ]
        if places:
            args[places[0]] = other
        elif name in kwargs:
            kwargs[name] = other
        else:
            return False
        try:
            with subject.environment():
                again = record(
                    subject.module, tuple(args), kwargs, argument_names=subject.argument_names
                )
        except CaptureError:
            return False
        return len(again.outputs) == len(self.recording.outputs) and all(
            _equal(self.recording.values[a], again.values[b])
            for a, b in zip(self.recording.outputs, again.outputs, strict=True)
        )


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return False
    return bool(torch.equal(one.nan_to_num(), other.nan_to_num()))


def _is_square(bench: Bench, site: Site) -> bool:
    """Return whether a site has as many keys as queries."""
    sizes = shape(bench.recording, site.scores)
    return math.prod(sizes[a] for a in site.key_axes) == math.prod(sizes[a] for a in site.row_axes)


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
