"""Masks made from lengths that end one position too late, or too early."""

from __future__ import annotations

from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry
from mha_lint.facts.masks.counts import counts_real, is_called_length
from mha_lint.facts.masks.effects import sample_of
from mha_lint.facts.masks.held import Rows
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.roots import Root
from mha_lint.facts.places import span_of
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.sites.site import Site


def one_beyond(bench: Bench, site: Site, root: Root, rows: Rows) -> Misplaced | None:
    """Return a mask of lengths that shows the first position behind each, or hides each last one.

    A class token in front, which is an argument's position to nobody, may move the end by one. Some
    sample of the call must fill all positions, which are those of an argument: then lengths count these.
    """
    if root.compares not in ("lt", "le", "gt", "ge") or root.constant is not None:
        return None
    if not is_called_length(root.argument) and not counts_real(bench, root.placeholder):
        return None
    lengths = bench.recording.values.get(root.placeholder)
    entry = rows.own(queries=False)
    if not isinstance(lengths, Tensor) or lengths.dim() != 1 or entry is None:
        return None
    t = bench.replay.base(entry.node).shape[entry.axis or 0]
    if int(lengths.max()) != t or not _are_of_argument(bench, entry, t):
        return None
    ends = _ends(bench, site, rows, entry)
    if ends is None or not all(0 <= b < lengths.numel() for b in ends):
        return None
    off = {b: end - int(lengths[b]) for b, end in ends.items()}
    if all(o == (int(lengths[b]) < t) for b, o in off.items()):
        b = next((b for b, o in off.items() if o), None)
        says, sees = "it and the first position behind it are visible", "first one behind"
    elif all(o == -1 for o in off.values()):
        b = next(iter(off))
        says, sees = "its last position is hidden", "last one of"
    else:
        return None
    if b is None:
        return None
    n = int(lengths[b])
    found = n if off[b] > 0 else n - 1
    verb = "seen with a positive" if off[b] > 0 else "given no"
    return Misplaced(
        "beyond" if off[b] > 0 else "within",
        root.name,
        f"{root.argument} is {n} for sample {b}: {says}",
        True,
        span_of(root.node),
        f"position {found} of sample {b}, the {sees} its length, is {verb} weight",
    )


def _ends(bench: Bench, site: Site, rows: Rows, entry: Entry) -> dict[int, int] | None:
    """Return how many of the first positions each sample shows; None where it shows others as well."""
    visible, samples = levels_of(bench, site).visible, sample_of(rows.keys)
    held = next(h for h in rows.keys if h.entry == entry)
    found: dict[int, int] = {}
    for g, b in enumerate([] if samples is None else samples.tolist()):
        seen = visible[g].any(0).tolist()
        places = [(p, s) for p, s in zip(held.positions[g].tolist(), seen, strict=True) if p >= 0]
        end = sum(s for _, s in places)
        if any(s != (p < end) for p, s in places) or found.get(b, end) != end:
            return None
        if sorted(p for p, _ in places) != list(range(len(places))):
            return None
        found[b] = end
    return found or None


def _are_of_argument(bench: Bench, entry: Entry, t: int) -> bool:
    """Return whether the argument of `entry` has `t` positions itself: nothing was put in front."""
    for node, name in zip(bench.recording.placeholders, bench.recording.input_names, strict=True):
        if name == entry.argument:
            value = bench.recording.values[node]
            return isinstance(value, Tensor) and t in value.shape
    return False
