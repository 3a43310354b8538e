"""What the oracle has to say about one site, in data and in sentences."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mha_lint.oracle.closeness import one_digit


@dataclass(frozen=True, slots=True)
class Deviation:
    """One departure from the definition that the site was shown to make.

    ``stage``: "operands", "scores", "weights", "context" or "output"; ``key`` and ``name``: the
    family and the member ("softmax-axis", "queries"); ``phrase``: reads well after "the reference
    with"; ``sentence``: the proof; ``max_difference``: what is left when the stage (or, if the
    sentence speaks of the output, the whole site) is recomputed with the deviation.
    ``equivalent``: other readings that the sizes at hand cannot tell apart.
    """

    stage: str
    key: str
    name: str
    phrase: str
    sentence: str
    max_difference: float
    equivalent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The outcome of one comparison.

    ``verdict``: "match", "mismatch" or "skipped". ``departs_at``: the first stage that differs.
    ``deviations``: the fewest that explain all of it. ``observed``: true of the site, but no
    departure by themselves (a source that two operands share). ``max_abs_error``: largest
    difference between the site's output (or what comes before it, where that is not known) and
    the reference computed from the projections' outputs, None where it cannot be computed (a bias
    whose scores a wrong split has made up anew); ``tolerance``: what
    rounding may amount to, 1e-9 of the largest element. ``unexplained``: a stage that no known
    variant reproduces. ``notes``: designs that were recognised and stages that were not compared.
    ``heat``: (h, T_q, T_k), largest difference of the weights over the samples, None if they agree.
    """

    verdict: str
    departs_at: str | None = None
    deviations: tuple[Deviation, ...] = ()
    observed: tuple[Deviation, ...] = ()
    max_abs_error: float | None = None
    tolerance: float | None = None
    explanation: str | None = None
    unexplained: bool = False
    notes: tuple[str, ...] = ()
    heat: Tensor | None = None


def confirm(verdict: Verdict, key: str) -> str | None:
    """Return the sentence that proves a deviation of the family `key`, or None.

    "split" stands for all of "split:q", "split:k" and "split:v".
    """
    for deviation in (*verdict.deviations, *verdict.observed):
        if deviation.key == key or deviation.key.startswith(f"{key}:"):
            return deviation.sentence
    return None


def equals(what: str, phrases: tuple[str, ...], left: float) -> str:
    """Return "output equals the reference with X and Y (max difference 3e-16)"."""
    return f"{what} the reference with {joined(phrases)} (max difference {one_digit(left)})"


def joined(phrases: tuple[str, ...]) -> str:
    """Return "A", "A and B" or "A, B and C"."""
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"
