"""What is added to the scores by position."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.levels import HIDES, Levels, levels_of
from mha_lint.facts.masks.steps import Step, steps_of
from mha_lint.facts.order import NotArrangedError, order_of
from mha_lint.facts.places import span_beside, span_of
from mha_lint.facts.positions.made import line_span, slopes_span
from mha_lint.facts.positions.origins import follows_parameters
from mha_lint.facts.positions.shift import further_products, handed_over, wrong_shift
from mha_lint.facts.positions.slopes import (
    Lines,
    accepted,
    is_geometric,
    lines_of,
    matches,
    published,
)
from mha_lint.facts.positions.turns import tables_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.position_facts import PositionBias, SlopeFault, WrongSlopes
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct, varies_along


@unless_data_decides
def measure_bias(bench: Bench, site: Site, *, guessed: bool = False) -> Fact[PositionBias]:
    """Return the bias of `site` by position; ``guessed``: the arguments of the call were made up."""
    members = [
        m for m in site.all
        if m.score is not None and m.q is not None and m.k is not None
        and m.row_axes and m.key_axes
    ]  # fmt: skip
    if not members or site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable("the scores are no product of queries and keys")
    if not any(further_products(bench, m) or _adds(bench, m) for m in members):
        return NotApplicable("nothing is added to the scores but masks")
    try:
        levels = [levels_of(bench, m) for m in members]
    except NotArrangedError as error:
        return Unknown(str(error))
    shift = next(
        (s for m, x in zip(members, levels, strict=True)
         if m.extra and (s := wrong_shift(bench, m, ~x.hidden)) is not None), None,
    )  # fmt: skip
    if guessed and shift is not None and handed_over(bench, members):
        return Unknown("how many relative positions the argument holds was guessed: pass --call")
    slopes = _slopes(bench, members, levels)
    return Known(PositionBias(slopes, shift), "the scores were set to 0, and what is left was read")


def _adds(bench: Bench, site: Site) -> bool:
    """Return whether something is added to the scores that hides nothing."""
    score = site.score
    assert score is not None
    if any(n not in (score.left, score.right) for n in operands(score.node)):
        return True
    steps = [s for s in steps_of(bench, site) if s.before and _is_fixed(bench, s)]
    return (bool(steps) and _extended(site)) or any(s.adds and not _only_hides(s) for s in steps)


def _is_fixed(bench: Bench, step: Step) -> bool:
    """Return whether what joins the scores does not come from float arguments, as states do."""
    floats = {p for p in bench.recording.placeholders if bench.replay.base(p).is_floating_point()}
    return any(not floats & bench.dependence.ancestors([n]) for n in step.sides)


def _slopes(bench: Bench, members: list[Site], levels: list[Levels]) -> WrongSlopes | None:
    """Return what is wrong with the linear bias of the heads, None where nothing is, or there is none."""
    first = members[0]
    tables = _tables(bench, first)
    if not tables or follows_parameters(bench, tables):
        return None
    flat = _flat(bench, first)
    if flat is not None:
        return flat
    parts = [_of_heads(x) for x in levels]
    if len({p[0].shape[1:] for p in parts}) != 1:
        return None
    level, seen = (torch.cat(x) for x in zip(*parts, strict=True))
    behind = level.shape[2] - level.shape[1]
    if behind < 0 or (behind and not _extended(first)):
        return None
    found = lines_of(level, seen, tuple(dict.fromkeys((behind, 0))))
    if found is None:
        return None
    return _judged(bench, first, found, behind)


def _tables(bench: Bench, site: Site) -> tuple[Node, ...]:
    """Return what joins the scores before the normaliser."""
    score = site.score
    assert score is not None
    own = {n for n in operands(score.node) if n not in (score.left, score.right)}
    return tuple(own | tables_of(bench, site.scores, site.normaliser.logits))


def _of_heads(levels: Levels) -> tuple[Tensor, Tensor]:
    """Return level and visibility (H, T_q, T_k) of the heads of the first sample, in their order."""
    own = (levels.group.samples == levels.group.samples[0]).nonzero().flatten()
    own = own[levels.group.heads[own].argsort(stable=True)]
    level = levels.level[own]
    return level, ~levels.hidden[own] & torch.isfinite(level)


def _extended(site: Site) -> bool:
    """Return whether further keys stand before those of this call: a cache, or memory tokens."""
    return site.k is not None and len(site.k.sources) > 1


def _judged(bench: Bench, site: Site, found: Lines, behind: int) -> WrongSlopes | None:
    wrong = _wrong(bench, site, found, behind)
    if wrong is None:
        return None
    fault, example, sure = wrong
    if behind and fault is SlopeFault.SIGN:
        fault = SlopeFault.OFFSET  # beside a cache: distances from the first key of this call
    heads = len(found.before)
    at = _made_at(bench, site, fault, found) or _span(bench, site)
    return WrongSlopes(fault, found.before, published(heads), example, at, sure)


def _made_at(bench: Bench, site: Site, fault: SlopeFault, found: Lines) -> Span | None:
    """Return where the line, or the slopes, of a bias are made that is wrong wherever it is added."""
    tables = _tables(bench, site)
    if fault is SlopeFault.SLOPES:
        return slopes_span(bench, tables, found.before)
    step = {
        SlopeFault.SIGN: next((s for s in found.before if s < 0), None),
        SlopeFault.FUTURE: next((s for s in found.after or () if s > 0), None),
    }.get(fault)
    if step is None or (fault is SlopeFault.SIGN and _penalty_added(bench, site)):
        return None
    return line_span(bench, tables, step, len(found.before), _gain(site))


def _wrong(
    bench: Bench, site: Site, found: Lines, behind: int
) -> tuple[SlopeFault, str, bool] | None:
    """Return the fault, the sentence that shows it, and whether no design is known to do so."""
    if not found.steady:
        if not _slopes_of_heads(found):
            return None
        listed = ", ".join(f"{s:.3g}" for s in found.by_row[:4])
        return SlopeFault.ROWS, f"every head has the slopes {listed} for different queries", True
    active = tuple(s for s in found.before if s)
    if not active:
        return None
    if found.own != behind:
        example = f"for the first query the bias is highest at key {found.own}, not at key {behind}"
        return SlopeFault.OFFSET, example, True
    far = next((i for i, s in enumerate(found.before) if s < 0), None)
    if far is not None:
        step = f"{-found.before[far]:.3g}"
        return SlopeFault.SIGN, f"head {far} loses {step} for each step nearer to the query", True
    beyond = next((i for i, s in enumerate(found.after or ()) if s > 0), None)
    if beyond is not None and found.after is not None:
        if _mask_left_out(bench, site):
            return None
        step = f"{found.after[beyond]:.3g}"
        example = (
            f"head {beyond} gains {step} for each step that a key lies further behind the query"
        )
        return SlopeFault.FUTURE, example, True
    return _by_sequence(bench, site, active)


def _penalty_added(bench: Bench, site: Site) -> bool:
    """Return whether numbers that are nowhere negative are added, where a minus was due."""
    score = site.score
    assert score is not None
    for step in steps_of(bench, site):
        if step.before and step.adds and not _only_hides(step) and step.node is not score.node:
            values = [bench.replay.base(n) for n in step.sides if is_number(bench.recording, n)]
            apart = span_of(step.node) != span_of(score.node)
            return apart and all(bool((v >= 0).all()) for v in values)
    return False


def _by_sequence(
    bench: Bench, site: Site, active: tuple[float, ...]
) -> tuple[SlopeFault, str, bool] | None:
    count = len(active)
    if count < 2:
        return None
    assert site.q is not None
    sizes = bench.replay.base(site.q.node).shape
    width = math.prod(sizes[a] for a in site.q.features)
    # Falcon scales its bias together with the scores.
    for factor in (1.0, width**-0.5, _gain(site)):
        if any(matches(active, due, factor) for due in accepted(count)):
            return None
    listed = ", ".join(f"{s:.3g}" for s in active[:4]) + (", ..." if count > 4 else "")
    if max(active) - min(active) <= 1e-6 * max(active):
        return SlopeFault.SAME, f"all {count} heads have the slope {active[0]:.3g}", True
    geometric = is_geometric(active)
    if geometric and _configured(active):
        return None
    return SlopeFault.SLOPES, f"the slopes of the heads are {listed}", not geometric


def _gain(site: Site) -> float:
    """Return by how much the scores are multiplied before the normaliser."""
    gain = site.to_logits.gain if site.to_logits is not None else None
    return 1.0 if gain is None or not gain.numel() else float(gain.abs().max())


def _configured(slopes: tuple[float, ...]) -> bool:
    """Return whether the slopes are 2^(-m i / h) for another whole m: MPT lets the user set it."""
    exponents = [-math.log2(s) * len(slopes) for s in sorted(slopes, reverse=True)]
    first = round(exponents[0])
    even = all(abs(e - first * (i + 1)) < 0.02 for i, e in enumerate(exponents))
    return even and first not in (0, len(slopes))


def _slopes_of_heads(found: Lines) -> bool:
    """Return whether what differs by row are the slopes that heads should have."""
    known = {s for due in accepted(len(found.before)) for s in due}
    near = [any(math.isclose(s, one, rel_tol=5e-3) for one in known) for s in found.by_row]
    return len(set(found.by_row)) > 1 and all(near)


def _mask_left_out(bench: Bench, site: Site) -> bool:
    """Return whether the call left an argument out that could have hidden the later keys."""
    module = bench.recording.module
    path = str(site.context.meta.get("module", ""))
    owners: list[Any] = [module]
    for part in path.split(".") if path else ():
        owners.append(getattr(owners[-1], part, None))
    for owner in owners:
        forward = getattr(owner, "forward", owner)
        try:
            parameters = inspect.signature(forward).parameters.values()
        except (TypeError, ValueError):
            continue
        if any(p.default is None for p in parameters):
            return True
    return False


def _flat(bench: Bench, site: Site) -> WrongSlopes | None:
    """Return a summand per head that is the same for all keys of a cache: the softmax cancels it."""
    sizes = bench.replay.base(site.scores).shape
    t_q, t_k = (math.prod(sizes[a] for a in axes) for axes in (site.row_axes, site.key_axes))
    if t_k <= t_q or not _extended(site):
        return None
    heads = len(distinct(levels_of(bench, site).group.heads))
    for step in steps_of(bench, site):
        if not step.before or step.fills or step.multiplies or heads < 2:
            continue
        if _same_for_all_keys(bench, site, step, heads):
            example = f"one number for each of {heads} heads is added to all {t_k} keys alike"
            return WrongSlopes(
                SlopeFault.FLAT, (), published(heads), example, span_beside(step.node, site.scores)
            )
    return None


def _same_for_all_keys(bench: Bench, site: Site, step: Step, heads: int) -> bool:
    logits = bench.replay.base(site.normaliser.logits)
    if step.offset.shape != logits.shape:
        return False
    offset = step.offset.reshape(-1)[order_of(bench, site).logits]
    if not bool((offset == offset[..., :1]).all()) or site.to_logits is None:
        return False
    along = site.to_logits.index[site.key_axes[-1]]
    keys = [a for a in range(logits.dim()) if varies_along(along, a)]
    for side in step.sides:
        sized = bench.replay.base(side).shape
        spread = [a - logits.dim() + len(sized) for a in keys]
        if is_number(bench.recording, side) and math.prod(sized) == heads:
            return all(a < 0 or sized[a] == 1 for a in spread)
    return False


def _span(bench: Bench, site: Site) -> Span | None:
    """Return where the bias joins the scores, in the function that makes them."""
    adding = [s for s in steps_of(bench, site) if s.before and s.adds and not _only_hides(s)]
    node = adding[0].node if adding else site.scores
    return span_beside(node, site.scores)


def _only_hides(step: Step) -> bool:
    followed = step.offset[step.gain != 0]
    return not bool(((followed.abs() > 0) & (followed.abs() < HIDES)).any())
