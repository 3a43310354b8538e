"""Whether padded positions reach real ones: code that knows of padding, and attention that does not.

What shows that the code knows of padding is a mask, a comparison of token ids with the padding id,
or of positions with lengths, that acts somewhere (a pooling, another layer), or an embedding with a
padding index whose ids end in padding. Then the padded positions are moved, and it is seen whether
real ones, or the pooled output, move.
"""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import MOVE
from mha_lint.facts.masks.effects import sample_of
from mha_lint.facts.masks.held import Rows, rows_of
from mha_lint.facts.masks.joins import line_of_its_own
from mha_lint.facts.masks.knowledge import Knowledge, by_masks, by_padding_index
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.recalled import is_read_by_python, padded_call
from mha_lint.facts.masks.roots import roots_among, roots_of
from mha_lint.facts.masks.visible import visible_with
from mha_lint.facts.order import NotArrangedError, order_of
from mha_lint.facts.places import span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable
from mha_lint.model.mask_fit_facts import PaddingLeak
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands, stack_of
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

SAME = 1e-9


def measure_padding(subject: Subject, bench: Bench, contract: Contract) -> Fact[PaddingLeak | None]:
    """Return the padded positions of the call that reach real ones, None if there are none."""
    del contract
    return _measured(bench, subject)


@unless_data_decides
def _measured(bench: Bench, subject: Subject) -> Fact[PaddingLeak | None]:
    if not bench.sites:
        return NotApplicable("there is no attention")
    known = [*by_masks(bench), *by_padding_index(subject, bench)]
    if not known:
        return NotApplicable("the code shows no sign of padding")
    for one in known:
        found = _leak(bench, one)
        if found is not None and is_read_by_python(bench, one):
            found = _called_again(subject, one)
        if found is not None:
            return Known(found, "the padded positions were moved, and masks kept as they were")
    return Known(None, "the padded positions were moved, and masks kept as they were")


def _called_again(subject: Subject, known: Knowledge) -> PaddingLeak | None:
    """Return the leak of a call with the padding that was made up, None where it has none.

    Code that asks whether anything is padded does something else without padding.
    """
    bench = padded_call(subject, known)
    if bench is None:
        return None
    told = (one for one in by_masks(bench) if not one.given)
    return next((found for one in told if (found := _leak(bench, one)) is not None), None)


def _leak(bench: Bench, known: Knowledge) -> PaddingLeak | None:
    for site in bench.sites:
        if known.told is not None and not _is_alike(known.told, site):
            continue
        if not _is_untold(bench, site, known):
            continue
        pushed = _pushed(bench, known)
        moved = _moved(bench, site, known, pushed)
        zeroed = moved is None and _is_zeroed(bench, site, known, pushed)
        if zeroed:
            moved = _moved(bench, site, known, {**pushed, **without_keys(bench, site, known)})
        if moved is None:
            continue
        reached, largest = moved
        pad = known.pads.nonzero()[0].tolist()
        return PaddingLeak(
            known.words,
            _line(bench, site),
            str(site.context.meta.get("module", "")),
            f"position {pad[1]} of sample {pad[0]}",
            reached,
            largest,
            zeroed,
        )
    return None


def _is_alike(one: Site, other: Site) -> bool:
    """Return whether two sites are the same attention of several in one list, by place and line."""
    paths = [str(s.context.meta.get("module", "")) for s in (one, other)]
    first, second = (re.sub(r"\d+", "#", p) for p in paths)
    return (
        paths[0] != paths[1]
        and first == second
        and one.kind is other.kind
        and span_of(one.context) == span_of(other.context)
    )


def _is_zeroed(bench: Bench, site: Site, known: Knowledge, pushed: dict[Node, Tensor]) -> bool:
    """Return whether padded ends of samples, known as such, are set to 0 ahead of `site`."""
    first = site.all[0]
    if known.root is None or not known.of_padding or first.k is None:
        return False
    key = first.k.node
    before, after = (
        bench.replay.run([key], {**known.given, **change})[0] for change in ({}, pushed)
    )
    return torch.equal(before, after)


def without_keys(bench: Bench, site: Site, known: Knowledge) -> dict[Node, Tensor]:
    """Return the logits of `site` with every padded key hidden."""
    found: dict[Node, Tensor] = {}
    for member in site.all:
        try:
            order, sample = order_of(bench, member), sample_of(rows_of(bench, member).keys)
        except NotArrangedError:
            continue
        if sample is None or order.logits.shape[2] != known.pads.shape[1]:
            continue
        node = member.normaliser.logits
        (at,) = bench.replay.run([node], known.given)
        flat = at.clone().reshape(-1)
        for g, b in enumerate(sample.tolist()):
            if 0 <= b < known.pads.shape[0]:
                flat[order.logits[g][:, known.pads[b]].reshape(-1)] = -math.inf
        found[node] = flat.reshape(at.shape)
    return found


def _list_line(bench: Bench, site: Site, other: Site) -> Span | None:
    """Return the line that calls both of two modules of one list, in the class that has the list."""
    root = bench.recording.module
    paths = [str(s.context.meta.get("module", "")).split(".") for s in (site, other)]
    same = next((i for i, (a, b) in enumerate(zip(*paths, strict=False)) if a != b), 0)
    while isinstance(root, nn.Module) and same >= 0:
        name = f"{type(root.get_submodule('.'.join(paths[0][:same]))).__qualname__}."
        frames = [f for f in stack_of(site.context) if f.function.startswith(name)]
        if frames:
            return frames[-1].span
        same -= 1
    return None


def _line(bench: Bench, site: Site) -> Span | None:
    """Return the line of the attention, or its call where others of the same lines hide padding."""
    first = site.all[0]
    told = [s for s in bench.sites if s is not site and roots_of(bench, s.all[0])]
    if first.score is None:
        return span_of(first.normaliser.weights)
    own = line_of_its_own(bench, first, first.score.node, told)
    if own is not None and own != span_of(first.score.node):
        return own
    if first.kind is Kind.LINEAR:
        return span_of(first.score.node)
    listed = next((s for s in told if _is_alike(s, site)), None)
    if listed is not None:
        return _list_line(bench, site, listed) or span_of(first.normaliser.logits)
    return span_of(first.normaliser.logits)  # the last line before the softmax, where a mask is due


def _is_untold(bench: Bench, site: Site, known: Knowledge) -> bool:
    """Return whether no mask made from data acts at `site`, and real queries see padded keys there."""
    first = site.all[0]
    if first.score is None or first.kind in (Kind.LINEAR, Kind.POOLING):
        return _gathers(bench, first, known)
    if first.kind is Kind.CHANNEL or roots_of(bench, first):
        return False
    try:
        visible = (
            visible_with(bench, first, known.given)
            if known.given
            else levels_of(bench, first).visible
        )
        rows = rows_of(bench, first)
    except NotArrangedError:
        return False
    return _sees(visible, rows, known)


def _gathers(bench: Bench, site: Site, known: Knowledge) -> bool:
    """Return whether padded positions reach what `site` sums, where there are no pairs to look at."""
    kept = {
        m.context: bench.replay.base(m.context)
        for other in bench.sites
        for m in other.all
        if m is not site and m.context is not site.context
    }
    front, seen = [site.context], set[Node]()
    while front:
        node = front.pop()
        if node not in seen and node not in kept and node is not known.entry.node:
            seen.add(node)
            front += operands(node)
    if known.entry.node not in bench.dependence.ancestors([site.context]):
        return False
    if roots_among(bench, seen):
        return False
    (after,) = bench.replay.run([site.context], {**kept, **known.given, **_pushed(bench, known)})
    return not torch.equal(after, bench.replay.base(site.context))


def _in_their_order(positions: Tensor, known: Knowledge) -> list[int]:
    """Return the positions that rows hold; those set to 0 hold none, and are told by the others."""
    held: list[int] = positions.tolist()
    there = [(i, p) for i, p in enumerate(held) if p >= 0]
    whole = len(held) == known.pads.shape[1] and len(there) > 1
    return list(range(len(held))) if whole and all(i == p for i, p in there) else held


def _pushed(bench: Bench, known: Knowledge) -> dict[Node, Tensor]:
    """Return the entry with its padded positions moved."""
    at = bench.replay.base(known.entry.node)
    pads = known.pads if known.entry.axis == 1 else known.pads.T
    return {known.entry.node: at + MOVE * pads[..., None].to(at.dtype)}


def _sees(visible: Tensor, rows: Rows, known: Knowledge) -> bool:
    keys = next((h for h in rows.keys if h.entry == known.entry), None)
    queries = next((h for h in rows.queries if h.entry == known.entry), None)
    sample = sample_of(rows.keys)
    if keys is None or sample is None:
        return False
    for g in range(visible.shape[0]):
        b = int(sample[g])
        if b < 0 or b >= known.pads.shape[0]:
            continue
        padded = [
            j
            for j, p in enumerate(_in_their_order(keys.positions[g], known))
            if 0 <= p < known.pads.shape[1] and bool(known.pads[b, p])
        ]
        for j in padded:
            for i in visible[g, :, j].nonzero().flatten().tolist():
                own = _in_their_order(queries.positions[g], known)[i] if queries is not None else -1
                if own < 0 or not bool(known.pads[b, own]):
                    return True
    return False


def _moved(
    bench: Bench, site: Site, known: Knowledge, change: dict[Node, Tensor]
) -> tuple[str, float] | None:
    """Return what moves in the outputs with a change of padded positions, None if nothing real does."""
    outs = [
        n
        for n in bench.recording.outputs
        if isinstance(bench.recording.values.get(n), Tensor) and is_number(bench.recording, n)
    ]
    if not outs or site.context not in bench.dependence.ancestors(outs):
        return None
    replay = bench.replay
    at = replay.base(known.entry.node)
    axis = known.entry.axis
    assert axis is not None
    before = replay.run(outs, {**known.given, known.entry.node: at})
    after = replay.run(outs, {**known.given, **change})
    for one, other in zip(before, after, strict=True):
        gap = (other - one).abs().nan_to_num()
        real = _real_elements(tuple(one.shape), known, axis)
        if real is None:
            continue
        gap = gap.where(
            real.expand_as(gap) if real.dim() == gap.dim() else real, torch.zeros_like(gap)
        )
        if float(gap.max()) > SAME * max(1.0, float(one.abs().nan_to_num().max())):
            words = "the pooled output" if one.dim() < 3 else "real positions"
            return f"{words} of the same sample", float(gap.max())
    return None


def _real_elements(sizes: tuple[int, ...], known: Knowledge, axis: int) -> Tensor | None:
    """Return which elements of an output belong to real positions of padded samples."""
    b, t = known.pads.shape
    some = known.pads.any(1) & ~known.pads.all(1)
    real = (~known.pads & some[:, None]) if axis == 1 else (~known.pads & some[:, None]).T
    lead = (b, t) if axis == 1 else (t, b)
    if sizes[:2] == lead and len(sizes) >= 2:
        return real.reshape(*lead, *[1] * (len(sizes) - 2))
    if len(sizes) >= 1 and sizes[0] == b:
        return some.reshape(b, *[1] * (len(sizes) - 1))
    if len(sizes) >= 2 and sizes[1] == b:
        return some.reshape(1, b, *[1] * (len(sizes) - 2))
    return torch.ones(sizes, dtype=torch.bool) if not sizes else None
