"""Masks that hide at another place than they speak of: another axis, sample, head, position, source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.bands import wrong_band
from mha_lint.facts.masks.combined import joined_to_nothing, shown_by_either, still_seen
from mha_lint.facts.masks.effects import (
    Landing,
    effects_of,
    joins,
    landing,
    lets_through,
    reads,
    sample_of,
)
from mha_lint.facts.masks.held import Rows, rows_of
from mha_lint.facts.masks.joins import call_line, join_of
from mha_lint.facts.masks.lengths import one_beyond
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.roots import Root, mask_closure, roots_of
from mha_lint.facts.masks.streams import named_stream, streams_of
from mha_lint.facts.masks.windows import mixed_windows
from mha_lint.facts.masks.words import remarks, sources_of
from mha_lint.facts.places import span_of
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.model.source import Span
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_REPEATS = ("repeat", "cat", "repeat_interleave", "tile", "stack")
_TURNS = ("transpose", "permute", "movedim", "flip", "roll")
_NEW_AXES = ("unsqueeze", "view", "reshape", "index", "expand")


def misplaced_masks(subject: Subject, bench: Bench, site: Site) -> Iterator[Misplaced]:
    """Yield the masks of `site` (a member) that lie at another place than they should."""
    rows = rows_of(bench, site)
    for root in roots_of(bench, site):
        found = (
            _on_queries(bench, site, root, rows)
            or _in_other_samples(subject, bench, site, root, rows)
            or _at_other_positions(bench, site, root, rows)
            or _of_other_source(bench, site, root, rows)
            or one_beyond(bench, site, root, rows)
        )
        if found is not None:
            yield found
        if found is None and lets_through(bench, site, root):
            found = shown_by_either(bench, site, root)
            if found is None:
                found = _still_seen(bench, site, root, rows)
            if found is not None:
                yield found
    yield from joined_to_nothing(bench, site)
    yield from wrong_band(subject, bench, site)
    yield from mixed_windows(bench, site, rows)


def _landing(bench: Bench, site: Site, root: Root, rows: Rows) -> Landing | None:
    effects = effects_of(bench, site, root)
    if not effects or (sample_of(rows.keys) is None and sample_of(rows.queries) is None):
        return None
    return landing(root, effects, rows, alone=root.entry is None)


def _still_seen(bench: Bench, site: Site, root: Root, rows: Rows) -> Misplaced | None:
    """Return padding that is still seen where each element acts on the key or query it is about."""
    found = _landing(bench, site, root, rows) if root.placed else None
    if found is None or found.elsewhere or found.wrong_sample or found.unknown:
        return None
    if root.entry is None and len(found.streams) != 1:
        return None
    return still_seen(bench, site, root, rows, root.entry or found.streams[0])


# --- the query axis --------------------------------------------------------------------------------


def _on_queries(bench: Bench, site: Site, root: Root, rows: Rows) -> Misplaced | None:
    """Return a mask of keys that hides whole queries and leaves their keys visible to the others."""
    if not root.placed or not _is_row(root):
        return None
    found = _landing(bench, site, root, rows)
    if found is None or found.rows == 0 or found.columns or found.elsewhere or found.wrong_sample:
        return None
    if rows.own(queries=True) is None or rows.own(queries=True) != rows.own(queries=False):
        return None
    if _columns_hidden_too(bench, site, root, rows) or not _leaks(bench, site, root):
        return None
    if not _hides_whole_rows(bench, site, root):
        return None
    return Misplaced(
        "queries",
        root.name,
        f"an element about position t of {root.name} hides what query t sees, and leaves key t"
        " visible to the others",
        True,
        _axis_line(bench, site, root),
        _leak_words(bench, site, root),
    )


def _hides_whole_rows(bench: Bench, site: Site, root: Root) -> bool:
    """Return whether an element decides on all that a query sees, and not on a few more keys."""
    before = levels_of(bench, site).visible
    for effect in effects_of(bench, site, root):
        touched = effect.moves.any(-1)
        if bool((before & ~effect.moves).any(-1)[touched].any()):
            return False
    return True


def _is_row(root: Root) -> bool:
    """Return whether an argument has one element for each sample and position."""
    return len(
        {*zip(root.samples.flatten().tolist(), root.positions.flatten().tolist(), strict=True)}
    ) == (root.samples.numel())


def _columns_hidden_too(bench: Bench, site: Site, root: Root, rows: Rows) -> bool:
    """Return whether another mask, or another one made from the same argument, acts on the keys."""
    for other in roots_of(bench, site):
        if other.node is root.node or not other.placed:
            continue
        found = _landing(bench, site, other, rows)
        if found is not None and found.columns:
            return True
    return False


def _leaks(bench: Bench, site: Site, root: Root) -> bool:
    """Return whether with padding at the end (or as in the call) some query still sees a padded key."""
    return bool(_leaking(bench, site, root))


def _leaking(bench: Bench, site: Site, root: Root) -> list[tuple[int, int, int]]:
    """Return (group, query, key) of real queries that see padded keys in the recorded call."""
    visible = levels_of(bench, site).visible
    done = reads(effects_of(bench, site, root))
    if done not in ("keep", "hide"):
        return []
    yes = bench.recording.values[root.node] == root.on
    padded = yes if done == "hide" else ~yes
    rows = rows_of(bench, site)
    sample = sample_of(rows.keys)
    if sample is None:
        return []
    pads = {
        (int(b), int(t))
        for b, t, p in zip(
            root.samples.flatten().tolist(),
            root.positions.flatten().tolist(),
            padded.flatten().tolist(),
            strict=True,
        )
        if p
    }
    if not pads:
        return _any_unguarded(bench, site, root)
    found = []
    for g in range(visible.shape[0]):
        b = int(sample[g])
        for i, j in visible[g].nonzero().tolist():
            if (b, j) in pads and (b, i) not in pads:
                found.append((g, i, j))
    return found


def _any_unguarded(bench: Bench, site: Site, root: Root) -> list[tuple[int, int, int]]:
    """Return a pair that shows that the last key is visible to an earlier query: no triangle helps."""
    visible = levels_of(bench, site).visible
    last = visible.shape[2] - 1
    there = visible[0, :, last].nonzero().flatten().tolist()
    earlier = [i for i in there if i < last]
    return [(0, earlier[0], last)] if earlier else []


def _leak_words(bench: Bench, site: Site, root: Root) -> str:
    pairs = _leaking(bench, site, root)
    if not pairs:
        return ""
    _, i, j = pairs[0]
    return f"query {i} sees key {j}, which {root.name} marks as padding"


def _axis_line(bench: Bench, site: Site, root: Root) -> Span | None:
    """Return the line that lays the mask on the query axis: where its last axis becomes a new one."""
    join = join_of(bench, site, root.node)
    closure = mask_closure(bench, site)
    below = bench.dependence.descendants([root.node])
    path = sorted(below & closure, key=bench.dependence.order.__getitem__)
    for node in path:
        value = bench.recording.values.get(node)
        if isinstance(value, Tensor) and value.dim() >= 2 and value.shape[-1] == 1:
            return span_of(node)
    return span_of(join)


# --- samples and heads -----------------------------------------------------------------------------


def _in_other_samples(
    subject: Subject, bench: Bench, site: Site, root: Root, rows: Rows
) -> Misplaced | None:
    if not root.per_sample or len(set(root.samples.flatten().tolist())) < 2:
        return None
    found = _landing(bench, site, root, rows)
    if found is None or not found.wrong_sample or found.example is None:
        return None
    heads = _lands_on_heads(bench, site, root, rows)
    if (
        root.node.op == "placeholder"
        and len(root.samples.shape) > 2
        and not _is_per_sample(subject, bench, site, root, heads)
    ):
        return None
    b, _, hit, _, _ = found.example
    if heads:
        kind = "heads"
        says = (
            f"the mask of sample {b} acts on head {b} of every sample: its first axis meets the"
            " heads, of which there are as many as samples"
        )
    else:
        kind = "samples"
        says = f"the mask of sample {b} acts on sample {hit}"
    return Misplaced(
        kind,
        root.name,
        says,
        True,
        _fold_line(bench, site, root, heads=heads),
        f"turning an element of sample {b} of {root.name} over changes what sample {hit} sees",
    )


def _lands_on_heads(bench: Bench, site: Site, root: Root, rows: Rows) -> bool:
    """Return whether all elements of sample b act on head b, in all samples."""
    group = levels_of(bench, site).group
    for effect in effects_of(bench, site, root):
        b = int(root.samples.flatten()[effect.index])
        groups = effect.moves.flatten(1).any(1)
        if set(group.heads[groups].tolist()) != {b}:
            return False
    return len(set(group.samples.tolist())) > 1


def _is_per_sample(subject: Subject, bench: Bench, site: Site, root: Root, heads: bool) -> bool:
    """Return whether the first axis of a (B, T, T) argument holds samples, where B is h as well."""
    if not heads:
        return True
    name = root.argument
    for source in sources_of(subject, [site.scores]):
        for line in remarks(source.text):
            if re.search(rf"\b{re.escape(name)}\b", line) and re.search(
                rf"{re.escape(name)}\b[^(\[]*[(\[]\s*(?:b|bs|bsz|batch\w*|n)\s*[,x]", line, re.I
            ):
                return True
    value = bench.recording.values[root.node]
    flat = value.flatten(1, -2) if value.dim() > 2 else value
    same = bool((flat == flat[:, :1]).all()) if value.dim() > 2 else True
    differ = bool((flat[0] != flat[1]).any())
    return same and differ  # the same keys for every query, others for each sample: padding


def _fold_line(bench: Bench, site: Site, root: Root, *, heads: bool) -> Span | None:
    """Return the line that repeats or re-orders the mask, else the one that brings it to the scores."""
    closure = mask_closure(bench, site)
    below = bench.dependence.descendants([root.node]) & closure
    path = sorted(below, key=bench.dependence.order.__getitem__)
    for ops in (_NEW_AXES,) if heads else (_REPEATS, _TURNS, _NEW_AXES):
        for node in path:
            if op(node) in ops and node is not root.node:
                return span_of(node)
    return span_of(join_of(bench, site, root.node))


# --- positions -------------------------------------------------------------------------------------


def _at_other_positions(bench: Bench, site: Site, root: Root, rows: Rows) -> Misplaced | None:
    if not root.placed or not _is_row(root) or joins(bench, site, root):
        return None
    found = _landing(bench, site, root, rows)
    if found is None or not found.elsewhere or found.wrong_sample or found.example is None:
        return None
    if any(int(e.moves.sum(-1).max()) > 2 for e in effects_of(bench, site, root)):
        return None  # an element that decides about whole rows is no mask of keys
    if found.unknown or found.columns + found.rows > found.elsewhere:
        return None
    keys = levels_of(bench, site).visible.shape[2]
    length = int(root.positions.max()) + 1
    if root.compares and root.entry is None and length == keys:
        return None  # lengths are compared with the places of the keys themselves: see `lengths`
    if not found.placeless and (keys == length and len(found.shifts) == 1):
        return None  # made from the ids of the next position, say
    if not found.placeless and keys == length and 0 in found.shifts:
        return None
    _, t, _, _, hit = found.example
    lands = f"the key of position {hit}" if hit >= 0 else "a key that holds no position"
    return Misplaced(
        "positions",
        root.name,
        f"the element about position {t} acts on {lands} ({keys} keys, {length} positions)",
        True,
        _length_line(bench, site, root, keys),
        f"turning the element about position {t} of {root.name} over hides or shows {lands}",
    )


def _length_line(bench: Bench, site: Site, root: Root, keys: int) -> Span | None:
    """Return the line that makes the mask as long as the keys."""
    below = bench.dependence.descendants([root.node]) & mask_closure(bench, site)
    for node in sorted(below, key=bench.dependence.order.__getitem__):
        value = bench.recording.values.get(node)
        if isinstance(value, Tensor) and node is not root.node and keys in value.shape:
            return span_of(node)
    return span_of(join_of(bench, site, root.node))


# --- the source ------------------------------------------------------------------------------------


def _of_other_source(bench: Bench, site: Site, root: Root, rows: Rows) -> Misplaced | None:
    """Return a key mask that speaks of another sequence than the keys come from."""
    own = rows.own(queries=False)
    if not root.positions.numel() or not _hides_keys(bench, site, root):
        return None
    if own is None:
        return _at_other_part(bench, site, root, rows)
    streams = streams_of(bench, root, site)
    if streams.meant is None or own == streams.meant or streams.better is None:
        return None
    join = join_of(bench, site, root.node)
    return Misplaced(
        "source",
        root.name,
        f"the keys come from {own.argument}, and {root.name} speaks of {streams.meant.argument}",
        streams.certain,
        call_line(site, join, root.node),
        streams.why,
        meant=streams.better,
    )


def _at_other_part(bench: Bench, site: Site, root: Root, rows: Rows) -> Misplaced | None:
    """Return a mask that, by its name, speaks of another part of keys that are joined of several."""
    parts = [h.entry for h in rows.keys if h.along]
    found = _landing(bench, site, root, rows)
    meant = named_stream(root.argument, parts)
    if found is None or not found.streams or meant is None or found.elsewhere:
        return None
    if any(e.argument == meant.argument for e in found.streams):
        return None
    return Misplaced(
        "source",
        root.name,
        f"it hides the keys that come from {found.streams[0].argument}, not those from {meant.argument}",
        False,
        _fold_line(bench, site, root, heads=False),
    )


def _hides_keys(bench: Bench, site: Site, root: Root) -> bool:
    """Return whether elements of `root` act on whole columns, and not on the rows of queries alone."""
    for effect in effects_of(bench, site, root):
        columns = effect.moves.any(1)
        if bool((columns.sum(-1) > 2).any()) and root.samples.dim() == 2:
            return False
    return bool(effects_of(bench, site, root))
