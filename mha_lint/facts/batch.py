"""Does attention run over the batch? Which axis that is, is told by the code and the call."""

from __future__ import annotations

import contextlib
import re
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.axis_votes import SAME, by_convolutions, by_tables, nudged
from mha_lint.facts.axis_words import AxisVerdict, said_in, source_text
from mha_lint.facts.bench import Bench
from mha_lint.facts.places import span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import BatchMixing, Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, op, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source

_PURPOSE = re.compile(
    r"(samples?|instances?|examples?|batch)\W+(?:\w+\W+){0,6}?(exchange|attend|interact|relation|mix)|"
    r"(across|over|between|among)\s+(the\s+)?(samples|batch|instances|examples)|mini-batch",
    re.IGNORECASE,
)
LAYOUTS = ("permute", "transpose", "movedim", "swapaxes", "view", "reshape", "flatten", "unflatten")


@unless_data_decides
def measure_batch(
    bench: Bench, sites: list[Site], root: Any, forward_text: str, *, guessed: bool = False
) -> Fact[BatchMixing]:
    """Return whether samples of one batch influence each other through attention."""
    if not sites:
        return NotApplicable("there is no attention site")
    open_questions: list[str] = []
    apart = "attention runs over no axis of samples"
    for site in sites:
        first = site.all[0]
        operand = _following_inputs(first)
        if operand is None or operand.source is None or first.kind in (Kind.LINEAR, Kind.CHANNEL):
            if not _outputs_stay_apart(bench):
                open_questions.append(
                    "samples influence each other or the first axis holds positions, which cannot"
                    " be told apart for this kind of attention"
                )
            continue
        found = _mixed_axis(bench, sites, operand.source, operand.position_axes)
        if found is None:
            continue
        placeholder, other = found
        name = _name(bench, placeholder)
        texts = [forward_text]
        if maps_to(bench, placeholder, 0, operand.source) == {0}:
            texts.append(_owner_text(bench, first))  # it sees the same axis 0
        verdict = _which_is_batch(bench, placeholder, root, texts, guessed)
        if other is None and _PURPOSE.search(forward_text):
            apart = f"axis 0 of {name} is attended over, as the text says: samples exchange"
            continue
        if other is None and (verdict is None or verdict.is_batch):
            open_questions.append(
                f"attention runs over axis 0 of {name}, and the other axis has one entry: pass a"
                " call with several samples and several positions"
            )
            continue
        if verdict is None:
            sizes = tuple(bench.replay.base(placeholder).shape)
            open_questions.append(
                f"attention runs over axis 0 of {name} {sizes}, and nothing says whether that axis"
                " holds samples or positions: pass a call with fewer samples than positions"
            )
            continue
        if not verdict.is_batch:
            apart = f"axis 0 of {name}, which attention runs over, holds positions: {verdict.why}"
            continue
        placeholder_dims = bench.replay.base(placeholder).dim()
        largest, what = _leak(bench, placeholder), "outputs"
        if largest == 0:
            # What the output reads may hold no sample at all: a class token that sees its likes only.
            largest, what = _leak(bench, placeholder, _states_behind(bench, first)), "states"
        return Known(
            BatchMixing(
                True,
                0,
                verdict.why,
                largest,
                span_of(first.scores),
                intended=bool(_PURPOSE.search(forward_text)),
                inferred=not verdict.strong,
                seen_in=what,
            ),
            f"changing sample 0 of {name} alone changes the {what} of the other samples by up to"
            f" {largest:.1g}"
            + (f"; axis {other} is never attended over" if placeholder_dims < 4 else ""),
        )
    dealt = _dealt_out_anew(bench, sites, root, forward_text, guessed)
    if dealt is not None:
        return dealt
    if open_questions:
        return Unknown(open_questions[0])
    return Known(BatchMixing(False, 0, "", 0.0, None), apart)


def _dealt_out_anew(
    bench: Bench, sites: list[Site], root: Any, forward_text: str, guessed: bool
) -> Fact[BatchMixing] | None:
    """Return the mixing of samples behind attention that kept them apart: a view or a permutation.

    Only where an output is laid out as the input is, sample by sample and position by position.
    """
    if _PURPOSE.search(forward_text):
        return None
    for placeholder in bench.recording.placeholders:
        value = bench.replay.base(placeholder)
        if not value.is_floating_point() or value.dim() != 3 or value.shape[0] == value.shape[1]:
            continue
        alike = [
            n
            for n in bench.recording.outputs
            if is_number(bench.recording, n)
            and shape(bench.recording, n)[:2] == tuple(value.shape[:2])
            and len(shape(bench.recording, n)) == value.dim()
        ]
        largest = _leak(bench, placeholder, alike) if alike and value.shape[0] > 1 else 0.0
        context = sites[-1].all[0].context
        if largest < SAME or _leak_before(bench, placeholder, context):
            continue
        verdict = _which_is_batch(bench, placeholder, root, [forward_text], guessed)
        if verdict is None or not verdict.is_batch or not verdict.strong:
            continue
        name = _name(bench, placeholder)
        return Known(
            BatchMixing(True, 0, verdict.why, largest, _last_layout(bench, context, alike[0])),
            f"changing sample 0 of {name} alone changes the outputs of the other samples by up to"
            f" {largest:.1g}, though attention keeps the samples apart",
        )
    return None


def _leak_before(bench: Bench, placeholder: Node, context: Node) -> bool:
    """Return whether moving sample 0 reaches more of the context already than one sample's share.

    Pictures of all samples in one list are dealt out by the places that wait for them.
    """
    value = bench.replay.base(placeholder)
    (after,) = bench.replay.run([context], {placeholder: nudged(value, 0)})
    changed = (after - bench.replay.base(context)).abs() > SAME
    along = [changed.movedim(a, 0).flatten(1).any(1) for a in range(changed.dim())]
    return not any(int(hit.sum()) * value.shape[0] <= len(hit) for hit in along)


def _last_layout(bench: Bench, context: Node, output: Node) -> Span | None:
    """Return the last change of layout between the context and an output."""
    moves = [n for n in bench.dependence.between(context, output) if op(n) in LAYOUTS]
    maps = [n for n in moves if op(n) in ("permute", "transpose", "movedim", "swapaxes")]
    return span_of((maps or moves or [output])[-1])


def _following_inputs(site: Site) -> Operand | None:
    """Return q, or k where the queries are learned and the same for all samples."""
    if site.q is None or site.k is None:
        return None
    return site.q if site.q.holds_data else site.k


def _outputs_stay_apart(bench: Bench) -> bool:
    """Return whether sample 0 of no input moves another sample of an output of as many samples."""
    inputs = [p for p in bench.recording.placeholders if _holds_samples(bench.replay.base(p))]
    return bool(inputs) and all(_leak(bench, p) < SAME for p in inputs)


def _holds_samples(value: torch.Tensor) -> bool:
    return value.dim() > 1 and value.shape[0] > 1 and value.dtype is not torch.bool


def _name(bench: Bench, placeholder: Node) -> str:
    names = dict(zip(bench.recording.placeholders, bench.recording.input_names, strict=True))
    return names[placeholder]


def _mixed_axis(
    bench: Bench, sites: list[Site], source: Source, positions: frozenset[int]
) -> tuple[Node, int | None] | None:
    """Return (input, other axis) where attention runs over axis 0 and never over another sequence axis.

    The other axis is None where it has one entry only, which tells nothing of positions and samples.
    """
    above = bench.dependence.ancestors([source.node])
    for placeholder in bench.recording.placeholders:
        if placeholder not in above:
            continue
        value = bench.replay.base(placeholder)
        if value.dim() < 2 or value.shape[0] < 2 or value.dtype is torch.bool:
            continue
        first = maps_to(bench, placeholder, 0, source)
        if not first or not first <= positions:
            continue
        maps = {axis: maps_to(bench, placeholder, axis, source) for axis in range(1, value.dim())}
        others = [a for a in maps if maps[a] and not maps[a] & positions]
        if others and value.dim() == 4 and not maps[1]:
            return placeholder, others[0]  # a (B, C, H, W) map: axis 0 holds samples, whatever else
        if others and not any(_attended(bench, s, placeholder, others[0]) for s in sites):
            return placeholder, others[0]
        rows = value.dim() > 2 or not value.is_floating_point()
        if rows and not others and _recurrent_axis(bench, value, source, positions):
            return placeholder, 1
        if not others and _lone_axis(bench, source, positions):
            return placeholder, None
    return None


def _lone_axis(bench: Bench, source: Source, positions: frozenset[int]) -> bool:
    """Return whether what is attended over has an axis of one entry beside the positions."""
    sizes = bench.replay.base(source.node).shape
    return any(sizes[a] == 1 for a in source.data_axes if a not in positions)


def _recurrent_axis(
    bench: Bench, value: torch.Tensor, source: Source, positions: frozenset[int]
) -> bool:
    """Return whether axis 1 of the input lives on as an axis that attention leaves alone.

    A recurrent layer before the attention has mixed it already, so that only its size tells.
    """
    sizes = bench.replay.base(source.node).shape
    rest = [a for a in source.data_axes if a not in positions and sizes[a] > 1]
    return len(rest) == 1 and sizes[rest[0]] == value.shape[1] and value.shape[1] != value.shape[0]


def maps_to(bench: Bench, placeholder: Node, axis: int, source: Source) -> frozenset[int]:
    """Return the data axes of `source` along which the slices of the input's `axis` stay apart."""
    changed = _moved(bench, placeholder, axis, 0).get(source.node)
    if changed is None or not bool(changed.any()):
        return frozenset()
    last = _moved(bench, placeholder, axis, -1).get(source.node)
    found = set()
    for a in source.data_axes:
        along = changed.movedim(a, 0).flatten(1).any(1)
        if bool(along.all()) or not bool(along.any()):
            continue
        # A learned token moves with no slice at all: the slices must move different parts.
        if last is None or bool((along != last.movedim(a, 0).flatten(1).any(1)).any()):
            found.add(a)
    return frozenset(found)


_KNOWN: WeakKeyDictionary[Replay, dict[tuple[Node, int, int], dict[Node, torch.Tensor]]] = (
    WeakKeyDictionary()
)
"""One run tells what moves at every site."""


def _moved(bench: Bench, placeholder: Node, axis: int, index: int) -> dict[Node, torch.Tensor]:
    """Return which elements of each q's and k's source move with a slice of the input's `axis`."""
    known = _KNOWN.setdefault(bench.replay, {})
    if (placeholder, axis, index) in known:
        return known[placeholder, axis, index]
    value = bench.replay.base(placeholder)
    below = bench.dependence.descendants([placeholder])
    operands = [o for s in bench.sites for o in (s.all[0].q, s.all[0].k) if o is not None]
    sources = {o.source.node for o in operands if o.source is not None}
    nodes = sorted(sources & below, key=bench.dependence.order.__getitem__)
    found: dict[Node, torch.Tensor] = {}
    if value.shape[axis] > 1:
        moved_in = nudged(value, axis, index)
        for some in (nodes, *([n] for n in nodes)):  # where one fails on other data, one by one
            with contextlib.suppress(IndexError, RuntimeError):
                after = bench.replay.run(some, {placeholder: moved_in})
                pairs = zip(some, after, strict=True)
                found |= {n: (a - bench.replay.base(n)).abs() > SAME for n, a in pairs}
            if len(found) == len(nodes):
                break
    known[placeholder, axis, index] = found
    return found


def _attended(bench: Bench, site: Site, placeholder: Node, axis: int) -> bool:
    operand = _following_inputs(site.all[0])
    if operand is None or operand.source is None:
        return False
    return bool(maps_to(bench, placeholder, axis, operand.source) & operand.position_axes)


def _leak(bench: Bench, placeholder: Node, nodes: list[Node] | None = None) -> float:
    """Return by how much sample 0 of an input moves the other samples of `nodes` (the outputs)."""
    value = bench.replay.base(placeholder)
    read = bench.recording.outputs if nodes is None else nodes
    read = [n for n in read if bench.replay.base(n).is_floating_point()]
    largest = 0.0
    for node, after in zip(
        read, bench.replay.run(read, {placeholder: nudged(value, 0)}), strict=True
    ):
        before = bench.replay.base(node)
        if before.dim() and before.shape[0] == value.shape[0]:
            largest = max(largest, float((after - before)[1:].abs().max()))
    return largest


def _states_behind(bench: Bench, site: Site) -> list[Node]:
    """Return what is made of the context, laid out as the input is."""
    below = bench.dependence.descendants([site.context]) & bench.dependence.live
    rank = max(4, len(shape(bench.recording, site.scores)))
    return [
        n
        for n in sorted(below, key=bench.dependence.order.__getitem__)
        if is_number(bench.recording, n) and 2 < len(shape(bench.recording, n)) < rank
    ][:1]


def _which_is_batch(
    bench: Bench, placeholder: Node, root: Any, texts: list[str], guessed: bool
) -> AxisVerdict | None:
    """Return what axis 0 holds: told by layers, code, comments, token ids and sizes, in this order."""
    value = bench.replay.base(placeholder)
    if value.dim() >= 4:
        said = [v for text in texts for v in said_in(text) if v.strong and not v.is_batch]
        return said[0] if said else AxisVerdict(True, "a 4-D map has its samples on axis 0")
    votes: list[AxisVerdict] = []
    for name, module in root.named_modules() if isinstance(root, torch.nn.Module) else ():
        if getattr(module, "batch_first", None) is True:
            told = AxisVerdict(True, f"{name or 'the module'} has batch_first=True")
            if isinstance(module, torch.nn.RNNBase):
                return told  # what a layer was told outweighs what a variable is called
            votes.append(told)
    votes += by_convolutions(bench, placeholder)
    votes += by_tables(bench, placeholder)
    votes += [vote for text in texts for vote in said_in(text)]
    if not value.is_floating_point():
        votes.append(AxisVerdict(True, "token ids come as (batch, position)", strong=False))
    # Time-first code is right, so what speaks for it goes first.
    votes.sort(key=lambda v: v.is_batch)
    if votes:
        return votes[0]
    sizes = tuple(value.shape)
    if sizes[0] == sizes[1] or guessed:
        return None
    why = f"the call passes {sizes[0]} x {sizes[1]}"
    if sizes[0] < sizes[1]:
        return AxisVerdict(True, f"{why}, fewer samples than positions", strong=False)
    return AxisVerdict(False, f"{why}, more than axis 1 has", strong=False)


def _owner_text(bench: Bench, site: Site) -> str:
    """Return the source of the class that holds `site`, "" for torch's own."""
    module = bench.recording.module
    if module is None:
        return ""
    owner = bench.recording.modules.get(str(site.context.meta.get("module", "")))
    return source_text(owner) if owner is not None and owner is not module else ""
