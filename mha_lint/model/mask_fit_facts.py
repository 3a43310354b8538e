"""Whether masks fit what the code is meant to be."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class Inversion:
    """A mask that is read the wrong way round, or a triangle that shows the other side.

    ``how``: "triangle" (only later positions are visible), "window" (all but a window is visible),
    "polarity", or "sites" (two sites read one mask in opposite ways). ``mask``: how the reader knows
    it. ``reads``: what attention does where the mask says yes, "keep" or "hide". ``signs``: what says
    that the other is meant, a sentence each; ``certain``: one of them is more than a name or a comment.
    ``built``: the fault lies where the mask is made, not where it is read. ``witness``: two runs, in
    words.
    """

    how: str
    mask: str
    reads: str
    signs: tuple[str, ...]
    certain: bool
    built: bool
    span: Span | None
    other: Span | None = None
    witness: str = ""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A mask that hides at another place than it speaks of.

    ``kind``: "queries" (it hides queries, and no keys), "samples", "heads" (the samples' masks land on
    the heads), "positions", "source" (it speaks of another sequence than the keys), "halves" (two
    masks are joined so that nothing is hidden), "either" (a key is visible as soon as one of two masks
    allows it), "window" (a band on the wrong side of the query), "short" (a band that is not as long
    as its size says), "lopsided" (one that is shorter on one side), "beyond" (the first position
    behind each sample's length is visible), "within" (the last one is hidden). ``says``: a sentence with indices.
    """

    kind: str
    mask: str
    says: str
    certain: bool
    span: Span | None
    witness: str = ""
    meant: str = ""


@dataclass(frozen=True, slots=True)
class Triangle:
    """A causal triangle where none is due.

    ``why``: what says that every key should be visible; ``certain``: that is no name. ``seen`` and
    ``hidden``: numbers of pairs.
    """

    why: str
    certain: bool
    span: Span | None
    t_q: int
    t_k: int
    hidden: int
    witness: str = ""


@dataclass(frozen=True, slots=True)
class MaskFit:
    """Whether what is hidden at one site is what should be.

    ``causal_cross``: a triangle over the keys of another sequence; ``unwanted``: one in a module that
    should see in both directions.
    """

    inverted: tuple[Inversion, ...] = ()
    misplaced: tuple[Misplaced, ...] = ()
    causal_cross: Triangle | None = None
    unwanted: Triangle | None = None


@dataclass(frozen=True, slots=True)
class PaddingLeak:
    """Padded positions that reach real ones through attention.

    ``known_by``: what shows that the code knows of padding. ``site``: the id of the first site that
    leaves padded keys visible. ``padded`` and ``reached``: (sample, position) that was moved and what
    moved with it, in words. ``largest``: by how much. ``zeroed``: padded positions were set to 0 ahead
    of it, and it was their keys that were hidden to see what moves.
    """

    known_by: str
    span: Span | None
    module: str
    padded: str
    reached: str
    largest: float
    zeroed: bool = False
