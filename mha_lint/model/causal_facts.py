"""Whether later positions reach earlier ones, and whether cached decoding agrees with the whole."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class Leak:
    """Two runs that differ at position ``later`` of ``entry``, and in ``reached`` at ``earlier``.

    ``shift``: what to add to a position of ``entry`` to get its own row in ``reached``.
    """

    entry: str
    later: int
    earlier: int
    change: float
    reached: str = "output"
    shift: int = 0

    def __str__(self) -> str:
        """Return the proof in words."""
        if self.change == float("inf"):
            return (
                f"moving position {self.later} of {self.entry} makes {self.reached} {self.earlier}"
                " no number"
            )
        return (
            f"moving position {self.later} of {self.entry} changes {self.reached} {self.earlier} by"
            f" {self.change:.1g}"
        )


@dataclass(frozen=True, slots=True)
class CausalFault:
    """One reason why a later position reaches an earlier one, or why a query does not see itself.

    ``kind``: "mixing" (besides attention: ``detail`` says in what it arrives), "strict" (no query
    sees itself, and the first sees nothing: ``detail`` says what it gets then), "ahead" (every query
    sees ``count`` later keys), "unmasked" (one of several alike sites has no mask; ``label``: one
    that has), "lost" (a triangle is drawn and hides nothing), "open" (no mask hides anything),
    "other" (the mask leaves later keys visible), "wrapped" (the end reaches round to the start).
    ``site``: its number among the subject's sites.
    ``meant``: what says that the code is meant to be causal, "" where its own masks do.
    """

    kind: str
    site: int
    span: Span | None
    leak: Leak | None = None
    meant: str = ""
    stated: bool = False
    count: int = 0
    detail: str = ""
    label: Span | None = None


@dataclass(frozen=True, slots=True)
class Misalignment:
    """A triangle that starts at the wrong key, where there are other keys than queries.

    Query 0 sees keys up to ``last``; its own key is ``own`` of ``keys``. ``hidden``: its own key is
    hidden. ``is_causal``: the line passes the flag of that name. ``made``: the call in words where it
    is not the recorded one.
    """

    site: int
    span: Span | None
    queries: int
    keys: int
    last: int
    own: int
    hidden: bool
    is_causal: bool = False
    made: str = ""


@dataclass(frozen=True, slots=True)
class Causality:
    """Which later positions reach earlier ones, at the sites and through the whole subject.

    ``patterns``: what the mask of each site draws ("causal", "strict", "ahead", "reverse", "open",
    "other", or "" where it is no square). ``causal``: no later position reaches an earlier output,
    None where outputs have no positions. ``leak``: the largest one.
    """

    patterns: tuple[str, ...] = ()
    causal: bool | None = None
    leak: Leak | None = None
    faults: tuple[CausalFault, ...] = ()
    misaligned: tuple[Misalignment, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """Decoding with a cache, compared with one call on the whole sequence.

    ``argument``: what takes the cache. ``position``: the first one whose output differs, by
    ``change`` (``relative`` to the largest element: of all steps). ``cause``: the stage at which it
    departs: "unread", "keys lost", "order", "swapped", "stored keys", "stored values", "states", "query", "key",
    "bias", "mask", "" where none tells; ``detail`` in words. ``misaligned``: triangles that are misplaced in
    the step. ``place``: where the cache was taken from.
    """

    argument: str
    agrees: bool
    position: int = 0
    change: float = 0.0
    relative: float = 0.0
    cause: str = ""
    span: Span | None = None
    detail: str = ""
    misaligned: tuple[Misalignment, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class StateCheck:
    """What one call changes for the next, equal one.

    ``change``: the largest difference of the outputs, infinite where they differ in shape or are no
    numbers. ``name``: the attribute that changed, written at ``span``; ``documented``: the method or
    switch that shows that it is kept on purpose.
    """

    differs: bool = False
    change: float = 0.0
    name: str = ""
    span: Span | None = None
    documented: str = ""
