"""What each element of a mask does: it is turned over, and what becomes hidden or visible is read off."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry
from mha_lint.facts.masks.held import Held, Rows
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.once import once
from mha_lint.facts.masks.roots import Root, mask_closure
from mha_lint.facts.masks.visible import follows_with, visible_with
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site

MOST = 24
"""Elements that are turned over one by one, spread over the mask."""
JOINING = frozenset(
    [
        "sum",
        "cumsum",
        "cumprod",
        "prod",
        "mean",
        "argmax",
        "argmin",
        "argsort",
        "sort",
        "topk",
        "max",
        "min",
        "amax",
        "amin",
        "any",
        "all",
        "nonzero",
        "masked_select",
        "count_nonzero",
        "bincount",
        "unique",
        "searchsorted",
        "cummax",
        "cummin",
        "matmul",
        "bmm",
        "einsum",
        "conv1d",
        "conv2d",
        "max_pool1d",
        "max_pool2d",
        "avg_pool1d",
        "avg_pool2d",
        "interpolate",
        "norm",
    ]
)
"""What makes one element from several: then one element of a mask stands for no one position."""


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """What turning over element `index` (flat) of a root changes: (G, T_q, T_k) each.

    ``hides``: pairs that are hidden with it on and visible with it off; ``shows``: the reverse.
    """

    index: int
    hides: Tensor
    shows: Tensor

    @property
    def moves(self) -> Tensor:
        """Return the pairs that the element decides on."""
        return self.hides | self.shows


@once
def effects_of(bench: Bench, site: Site, root: Root) -> tuple[Effect, ...]:
    """Return the effects of some elements of `root` at `site`, those without any left out."""
    before = levels_of(bench, site).visible
    at = bench.replay.base(root.node)
    found: list[Effect] = []
    for index in spread(at.numel()):
        turned = at.clone().reshape(-1)
        was_on = bool(turned[index] == root.on)
        turned[index] = root.off if was_on else root.on
        after = visible_with(bench, site, {root.node: turned.reshape(at.shape)})
        gone, come = before & ~after, after & ~before
        hides, shows = (come, gone) if was_on else (gone, come)
        if bool(hides.any()) or bool(shows.any()):
            found.append(Effect(index, hides, shows))
    return tuple(found)


def spread(count: int) -> list[int]:
    """Return up to `MOST` of `count` places, spread evenly, both ends among them."""
    if count <= MOST:
        return list(range(count))
    # A step without a common divisor with the axes' lengths would be luck: take the golden ratio's.
    places = {0, count - 1} | {int(count * ((i * 0.6180339887) % 1.0)) for i in range(MOST)}
    return sorted(places)


def reads(effects: tuple[Effect, ...]) -> str:
    """Return "hide" where on hides at each element, "keep" where it shows, else ""."""
    hides = any(bool(e.hides.any()) for e in effects)
    shows = any(bool(e.shows.any()) for e in effects)
    if hides == shows:
        return ""
    return "hide" if hides else "keep"


def lets_through(bench: Bench, site: Site, root: Root) -> bool:
    """Return whether scores come through where the mask shows something, and no weak fill in their place.

    Over what another mask has hidden, a fill that is too weak to hide shows what it should hide.
    """
    effects = effects_of(bench, site, root)
    at, shows = bench.replay.base(root.node), root.off if reads(effects) == "hide" else root.on
    for effect in effects:
        shown = at.clone().reshape(-1)
        shown[effect.index] = shows
        follows = follows_with(bench, site, {root.node: shown.reshape(at.shape)})
        if bool(follows[effect.moves].any()):
            return True
    return not effects


def joins(bench: Bench, site: Site, root: Root) -> bool:
    """Return whether elements of `root` are joined (summed, sorted) on the way to the scores."""
    below = bench.dependence.descendants([root.node])
    return any(op(n) in JOINING for n in below & mask_closure(bench, site))


@dataclass(frozen=True, slots=True, eq=False)
class Landing:
    """Where the elements of a root land, over all that were turned over.

    ``columns``: pairs whose key is what the element is about; ``rows``: whose query is; pairs of
    both are in neither. ``elsewhere``: none of these; ``wrong_sample``: pairs of another sample
    altogether; ``unknown``: it is not known what they hold. Counted.
    ``example``: (sample, position, sample hit, query position hit, key position hit) of one that
    lands elsewhere. ``shifts``: key hit minus key meant, where the sample is right.
    """

    columns: int
    rows: int
    elsewhere: int
    wrong_sample: int
    unknown: int
    example: tuple[int, int, int, int, int] | None
    shifts: frozenset[int]
    placeless: int
    """Pairs of the right sample whose key holds no position at all (a learned key)."""
    streams: tuple[Entry, ...]
    """The sequences of the keys in which most elements land at their own position."""


def landing(root: Root, effects: tuple[Effect, ...], rows: Rows, *, alone: bool) -> Landing:
    """Return where elements of `root` (placed, or at least per sample) land.

    ``alone``: positions are counted along the argument's own axis, so that any entry will do.
    """
    keys = [h for h in rows.keys if alone or h.entry == root.entry or root.entry is None]
    queries = [h for h in rows.queries if alone or h.entry == root.entry or root.entry is None]
    columns = only = elsewhere = wrong = unknown = placeless = 0
    example: tuple[int, int, int, int, int] | None = None
    shifts: set[int] = set()
    streams: Counter[Entry] = Counter()
    key_sample, query_sample = sample_of(rows.keys), sample_of(rows.queries)
    if key_sample is None:
        key_sample = query_sample
    if query_sample is None:
        query_sample = key_sample
    assert key_sample is not None and query_sample is not None
    for effect in effects:
        b = int(root.samples.flatten()[effect.index])
        t = int(root.positions.flatten()[effect.index])
        g, i, j = effect.moves.nonzero(as_tuple=True)
        right_key = (key_sample[g] == b) if b >= 0 else torch.ones_like(g, dtype=torch.bool)
        right_query = (query_sample[g] == b) if b >= 0 else torch.ones_like(g, dtype=torch.bool)
        astray = ~right_key & ~right_query & (key_sample[g] >= 0)
        wrong += int(astray.sum())
        if t < 0:
            columns += int((right_key & ~astray).sum())
        else:
            at_key, key_known, key_none = _at(keys, rows.keys, g, j, t)
            if rows.fed is not None:
                key_none &= ~rows.fed[g, j]
            at_query, _, _ = _at(queries, rows.queries, g, i, t)
            on_column = right_key & at_key
            for held in keys:
                streams[held.entry] += int((on_column & (held.positions[g, j] == t)).sum())
            on_row = right_query & at_query
            rest = ~on_column & ~on_row & ~astray
            columns += int((on_column & ~on_row).sum())
            only += int((on_row & ~on_column).sum())
            blind = rest & ~(key_known | key_none)
            unknown += int(blind.sum())
            off = rest & ~blind
            elsewhere += int(off.sum())
            placeless += int((off & key_none).sum())
            for p in _positions(keys, g[off], j[off]):
                shifts.add(p - t)
            if bool(off.any()) and example is None:
                n = int(off.nonzero()[0])
                example = (
                    b,
                    t,
                    int(key_sample[g[n]]),
                    _first(queries, g[n], i[n]),
                    _first(keys, g[n], j[n]),
                )
        if bool(astray.any()) and (example is None or example[2] == example[0]):
            n = int(astray.nonzero()[0])
            example = (
                b,
                t,
                int(key_sample[g[n]]),
                _first(queries, g[n], i[n]),
                _first(keys, g[n], j[n]),
            )
    most = max(streams.values(), default=0)
    best = tuple(e for e, n in streams.items() if n == most > 0)
    return Landing(
        columns, only, elsewhere, wrong, unknown, example, frozenset(shifts), placeless, best
    )


def sample_of(sides: tuple[Held, ...]) -> Tensor | None:
    """Return (G,) the sample of each group, -1 where several or none are held, None without any."""
    found = [h.samples for h in sides if h.batch is not None]
    if not found:
        return None
    joined = torch.cat(found, -1)
    high = joined.amax(-1)
    low = torch.where(joined < 0, torch.full_like(joined, 1 << 40), joined).amin(-1)
    return torch.where(low == high, high, torch.full_like(high, -1))


def _at(
    sides: list[Held], every: tuple[Held, ...], g: Tensor, r: Tensor, position: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether rows (g, r) hold `position`; whether it is known what they hold; hold nothing."""
    at = torch.zeros_like(g, dtype=torch.bool)
    known = torch.zeros_like(at)
    moved = torch.zeros_like(at)
    for held in sides:
        at |= held.positions[g, r] == position
        known |= held.positions[g, r] >= 0
    for held in every:
        moved |= held.moves[g, r]
    return at, known, ~moved


def _positions(sides: list[Held], g: Tensor, r: Tensor) -> set[int]:
    return {p for h in sides for p in h.positions[g, r].tolist() if p >= 0}


def _first(sides: list[Held], g: Tensor, r: Tensor) -> int:
    return next((int(h.positions[g, r]) for h in sides if int(h.positions[g, r]) >= 0), -1)
