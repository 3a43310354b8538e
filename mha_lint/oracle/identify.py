"""Compare a site with the reference, stage by stage, and name what departs.

`compare` is the oracle's face. Without any departure it stops early; otherwise it returns the
fewest that fit both sizes, or says at which stage no known variant reproduces the site.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mha_lint.oracle.chain import as_due, as_found, site_tensor
from mha_lint.oracle.closeness import RELATIVE, difference, magnitude, one_digit
from mha_lint.oracle.data import SiteData, inconsistent, moved
from mha_lint.oracle.fit import Departure, Fit
from mha_lint.oracle.reference import softmax
from mha_lint.oracle.settle import SEARCHES, STAGE_OF, Settled, settle
from mha_lint.oracle.variants import causal, roles
from mha_lint.oracle.verdict import Deviation, Verdict, equals, joined
from mha_lint.oracle.view import SiteView

NEEDED = ("scores", "weights", "context")
"""Steps that only known arithmetic can explain; the others may hold designs of their own."""

SUBJECT_OF_STEP = {
    "causal": "mask equals that of",
    "scores": "scores equal those of",
    "weights": "weights equal those of",
    "context": "context equals that of",
    "merge": "merged heads equal those of",
    "output": "output equals",
}


@torch.no_grad()
def compare(
    first: SiteData, second: SiteData | None = None, *, device: torch.device | str | None = None
) -> Verdict:
    """Return the verdict on one site, seen at one or (better) two sizes.

    ``second`` is the same site in a subject rebuilt at other sizes. ``device``: where to compute;
    None: where the tensors are.
    """
    if first.reason_skip is not None:
        return Verdict("skipped", explanation=first.reason_skip)
    reason = inconsistent(first)
    if reason is not None:
        return Verdict("skipped", explanation=reason)
    if second is not None and (second.reason_skip or inconsistent(second)) is not None:
        second = None
    if device is not None:
        first, second = moved(first, device), None if second is None else moved(second, device)
    views = [SiteView(data) for data in (first, second) if data is not None]
    settled: dict[str, Settled] = {}
    notes: list[str] = []
    lost: str | None = None
    for letter in "qkv":
        if views[0].operand(letter).opaque is not None:
            why = views[0].operand(letter).opaque
            notes.append(f"the split of the {letter} operand was not compared: {why}")
    for step in SEARCHES:
        if not all(_compared(view, step) for view in views):
            continue
        found = settle(step, views[0], views[1] if len(views) > 1 else None)
        if found is not None:
            settled[step] = found
        elif step in NEEDED:
            lost = lost or STAGE_OF[step]
        else:
            notes.append(NOT_COMPARED[step.partition(":")[0]].format(step.partition(":")[2]))
    notes += [found.first.note for found in settled.values() if found.first.note]
    return _verdict(views, settled, lost, notes)


NOT_COMPARED = {
    "causal": "the mask is no triangle that is known, so it was not compared with a causal one",
    "roles": "the {} operand comes from another tensor than the projection that is due",
    "split": "the {} operand is no rearrangement of its projection's output, so its split was not"
    " compared",
    "merge": "what is projected is no rearrangement of the context, so the merge was not compared",
    "output": "the output is not the output projection of the merged heads alone, so it was not"
    " compared",
}


def _compared(view: SiteView, step: str) -> bool:
    """Return whether the data for a step is there at all."""
    data, (kind, _, letter) = view.data, step.partition(":")
    if kind == "roles":
        return view.operand(letter).due is not None and view.operand(letter).source is not None
    if kind == "split":
        return view.operand(letter).opaque is None and view.operand(letter).source is not None
    if kind == "causal":
        return data.causal_due is not None
    if kind == "scores":
        return not bool(view.hidden.all())
    if kind == "merge":
        return data.merged is not None
    if kind == "output":
        return all(part is not None for part in (data.merged, data.output, data.output_weight))
    return True


def _verdict(
    views: list[SiteView], settled: dict[str, Settled], lost: str | None, notes: list[str]
) -> Verdict:
    readings = {step: found.first for step, found in settled.items()}
    departing = [found for found in settled.values() if found.first.departures]
    error, tolerance = _error(views[0], readings)
    observed = tuple(_observation(departure, left) for departure, left in roles.observed(views[0]))
    triangle = causal.observed(views[0])
    if triangle is not None:
        observed = (*observed, _seen_mask(triangle))
    if lost is None and not departing:
        if error is not None and tolerance is not None and error > tolerance:
            return Verdict("skipped", explanation="; ".join([_ALONE, *notes]), notes=tuple(notes))
        return Verdict(
            "match",
            observed=observed,
            max_abs_error=error,
            tolerance=tolerance,
            explanation="; ".join(notes) or None,
            notes=tuple(notes),
        )
    whole = _whole_proof(views, settled) if lost is None else None
    proven = error is None or tolerance is None or error > tolerance
    deviations = tuple(
        _deviation(found, departure, whole if proven else None)
        for found in departing
        for departure in found.first.departures
    )
    stages = [STAGE_OF[found.step] for found in departing] + ([lost] if lost else [])
    departs_at = min(stages, key=("operands", "scores", "weights", "context", "output").index)
    return Verdict(
        "mismatch",
        departs_at=departs_at,
        deviations=deviations,
        observed=observed,
        max_abs_error=error,
        tolerance=tolerance,
        explanation=_explanation(deviations, whole, lost, notes),
        unexplained=lost is not None,
        notes=tuple(notes),
        heat=_heat(views[0]),
    )


_ALONE = "each stage agrees with the reference by itself, but the whole was not reproduced"


def _error(view: SiteView, readings: dict[str, Fit]) -> tuple[float | None, float | None]:
    """Return the difference between site and definition, and the tolerance, at one size."""
    own = site_tensor(view, readings)
    tolerance = RELATIVE * magnitude(own)
    due = as_due(view, readings)
    if due is None or due.shape != own.shape:
        return None, tolerance
    where = _defined(own)
    if bool(view.dead_rows.any()):
        rows = _rows_with_keys(view, own)
        if rows is None:
            return None, tolerance
        where = rows if where is None else where & rows
    return difference(own, due, where=where), tolerance


def _rows_with_keys(view: SiteView, own: Tensor) -> Tensor | None:
    """Return which rows of a context or output are made by queries that have a key, if they can be told."""
    dead = view.dead_rows
    if own is not view.data.context:
        if view.groups is None:
            return None
        dead = view.groups.unfold(dead).any(1)
    if dead.shape != own.shape[:2] or bool(dead.all()):
        return None
    return ~dead.unsqueeze(-1)


def _defined(own: Tensor) -> Tensor | None:
    """Return which elements to compare: all but the NaN that, say, queries without a key give."""
    finite = torch.isfinite(own)
    return None if bool(finite.all()) else finite


def _whole_proof(views: list[SiteView], settled: dict[str, Settled]) -> tuple[str, float] | None:
    """Return ("output equals the reference with ...", difference) if the parts make the whole."""
    worst = 0.0
    for number, view in enumerate(views):
        fits = {step: found.second if number else found.first for step, found in settled.items()}
        readings = {step: fit for step, fit in fits.items() if fit is not None}
        found, own = as_found(view, readings), site_tensor(view, readings)
        if found is None:
            return None
        left = difference(own, found, where=_defined(own))
        if left > RELATIVE * magnitude(own):
            return None
        worst = max(worst, left)
    phrases = _phrases(settled)
    what = "output equals" if "output" in settled or "merge" in settled else "context equals"
    return equals(what, phrases, worst), worst


def _phrases(settled: dict[str, Settled]) -> tuple[str, ...]:
    """Return the phrases of all departures, those of a split that q, k and v share in one."""
    phrases: list[str] = []
    by_name: dict[str, list[Departure]] = {}
    for found in settled.values():
        for departure in found.first.departures:
            if departure.key.startswith("split:"):
                by_name.setdefault(departure.name, []).append(departure)
            else:
                phrases.append(departure.phrase)
    splits = []
    for group in by_name.values():
        subjects = tuple(departure.phrase.split(" ", 1)[0] for departure in group)
        splits.append(f"{joined(subjects)} {group[0].phrase.split(' ', 1)[1]}")
    return (*splits, *phrases)


def _deviation(found: Settled, departure: Departure, whole: tuple[str, float] | None) -> Deviation:
    left = max(found.first.difference, 0.0 if found.second is None else found.second.difference)
    if whole is not None:
        sentence, left = whole
    else:
        subject = SUBJECT_OF_STEP.get(found.step, "operands equal those of")
        phrases = tuple(departure.phrase for departure in found.first.departures)
        sentence = equals(subject, phrases, left)
    others = tuple(" and ".join(other.phrase for other in group) for group in found.others)
    return Deviation(
        stage=STAGE_OF[found.step],
        key=departure.key,
        name=departure.name,
        phrase=departure.phrase,
        sentence=sentence,
        max_difference=left,
        equivalent=others,
    )


def _observation(departure: Departure, left: float) -> Deviation:
    sentence = f"operands equal the reference's with {departure.phrase}"
    return Deviation(
        stage="operands",
        key=departure.key,
        name=departure.name,
        phrase=departure.phrase,
        sentence=f"{sentence} (max difference {one_digit(left)})",
        max_difference=left,
    )


def _seen_mask(triangle: Departure) -> Deviation:
    return Deviation(
        stage="scores",
        key=triangle.key,
        name=triangle.name,
        phrase=triangle.phrase,
        sentence=f"the mask equals {triangle.phrase}",
        max_difference=0.0,
    )


def _explanation(
    deviations: tuple[Deviation, ...],
    whole: tuple[str, float] | None,
    lost: str | None,
    notes: list[str],
) -> str:
    parts = [whole[0]] if whole is not None else list(dict.fromkeys(d.sentence for d in deviations))
    parts += [
        f"{deviation.phrase} cannot be told from {joined(deviation.equivalent)} at these sizes"
        for deviation in deviations
        if deviation.equivalent
    ]
    if lost is not None:
        parts.append(f"no known variant of attention reproduces the {lost}")
    return "; ".join([*parts, *notes])


def _heat(view: SiteView) -> Tensor | None:
    """Return (h, T_q, T_k): how far the weights are from a softmax over keys, worst sample."""
    if view.groups is None:
        return None
    gap = (view.data.weights - softmax(view.data.logits)).abs().nan_to_num(0.0)
    heads = view.groups.unfold(gap).amax(0)
    return heads if bool((heads > RELATIVE).any()) else None
