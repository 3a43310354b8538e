"""What is measured once on a whole subject."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class Truncation:
    """Channels lost because num_heads does not divide a width."""

    width: int
    num_heads: int
    kept: int
    remainder: int
    valid: tuple[int, ...]
    how: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class SizeFailure:
    """What broke at other sizes: the changed arguments, the error, and the line."""

    change: str
    error: str
    kind: str
    """"weight-orientation", "merge-width", "head-width" or "other"."""
    detail: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class BatchMixing:
    """Whether samples influence each other.

    ``axis``: the input axis that turned out to be the batch. ``why_batch``: what says so.
    ``largest``: the largest change of another sample's output.
    """

    mixes: bool
    axis: int
    why_batch: str
    largest: float
    span: Span | None
    intended: bool = False
    inferred: bool = False
    """What says which axis is the batch is a comment, a name or a size, no code."""
    seen_in: str = "outputs"
    """What of the other samples was seen to change: "outputs", or "states" that outputs do not read."""


@dataclass(frozen=True, slots=True)
class UnusedInput:
    """A tensor argument of forward that no output depends on.

    ``encoded``: the call makes states of it, by attention or several layers, and drops them.
    """

    name: str
    shape: tuple[int, ...]
    looks_like_source: bool
    encoded: bool = False
