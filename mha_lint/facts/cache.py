"""Whether decoding with a cache agrees with one call on the whole sequence."""

from __future__ import annotations

import torch
from torch import nn

from mha_lint.capture import random_parameters
from mha_lint.facts.bench import Bench
from mha_lint.facts.caching.arguments import SURE, Arguments, arguments_of, without_extras
from mha_lint.facts.caching.calls import (
    LENGTHS,
    Caller,
    NotRunError,
    main_output,
    returns_nothing_more,
)
from mha_lint.facts.caching.fresh import fresh_module
from mha_lint.facts.caching.protocol import (
    COARSE,
    Trial,
    holds_the_sequence,
    plans,
    size_after,
    trials,
)
from mha_lint.facts.caching.slots import told_places, writes_to_itself
from mha_lint.facts.caching.stages import departure, recording_of
from mha_lint.facts.caching.state import state_of
from mha_lint.facts.caching.ties import picks_among_equals
from mha_lint.model.causal_facts import CacheCheck, StateCheck
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Known, NotApplicable, Unknown
from mha_lint.model.source import Span
from mha_lint.sites.dependence import Dependence, is_number
from mha_lint.targets.subject import Subject
from mha_lint.targets.timelimit import TimeLimitError, time_limit

ROUNDING = 1e-3
"""Relative: steps in float32 differ from the whole by some 1e-6, a wrong position by more than 1e-2."""
HALF = 5e-2
"""The same where the module computes in a half type."""
SECONDS = 5.0


def measure_cache(subject: Subject, bench: Bench, contract: Contract) -> Fact[CacheCheck]:
    """Return how cached decoding departs from the full forward."""
    del contract
    arguments = arguments_of(subject, bench)
    if arguments is None:
        return NotApplicable("no sequence is attended to by itself")
    if not arguments.caches and not _owns_a_cache(subject, arguments):
        return NotApplicable("no argument takes what was computed before")
    try:
        with time_limit(SECONDS), subject.environment():
            return _checked(subject, bench, arguments)
    except TimeLimitError:
        return _open(arguments, "stepping through a sequence takes too long")


def measure_state(subject: Subject, bench: Bench) -> Fact[StateCheck]:
    """Return what one call changes for the next."""
    try:
        with time_limit(SECONDS):
            return state_of(subject, bench)
    except TimeLimitError:
        return Unknown("calling twice takes too long")


def _owns_a_cache(subject: Subject, arguments: Arguments) -> bool:
    """Return whether the module keeps a cache of its own and is told where a chunk stands.

    Tensors that a call writes to are kept for the next one; what no call wrote to yet is known by name.
    """
    if not isinstance(subject.module, nn.Module):
        return False
    if not arguments.places:
        arguments.places |= told_places(subject, arguments)
        for name in arguments.places:
            arguments.fixed.pop(name, None)
        return bool(arguments.places)
    named = any(
        SURE.search(name.lower()) and isinstance(value, torch.Tensor)
        for part in subject.module.modules()
        for name, value in [*part._buffers.items(), *vars(part).items()]
    )
    return named or writes_to_itself(subject)


def _open(arguments: Arguments, why: str) -> Fact[CacheCheck]:
    """Leave open what an argument called a cache does; of other names it need not be one."""
    sure = any(SURE.search(n.lower()) for n in arguments.caches)
    return Unknown(why) if sure else NotApplicable(why)


def _checked(subject: Subject, bench: Bench, arguments: Arguments) -> Fact[CacheCheck]:
    named = ", ".join(arguments.caches) or "the module's own cache"
    best: tuple[Caller, Trial] | None = None
    callers = callers_of(subject, bench, arguments)
    undefined = False
    for caller in callers:
        tied: bool | None = None
        for trial in trials(caller):
            if trial.reads and max(trial.gaps) <= _tolerance(caller, trial):
                words = f"{named}: {len(trial.gaps)} steps give what the whole sequence gives"
                return Known(CacheCheck(named, True), words)
            if trial.reads and tied is None:
                tied = _hangs_on_a_tie(caller, trial)
            if best is None or _rank(trial) > _rank(best[1]):
                best = caller, trial
        if tied:
            undefined, best = True, None  # other numbers, or fewer, may show no tie
        if best is not None:
            break
    if best is None and undefined:
        return _open(arguments, "it picks among equal numbers: which of them is not defined")
    if best is None:
        alone = without_extras(arguments)
        if alone is not None:
            return _checked(subject, bench, alone)
        if arguments.caches and not arguments.required and returns_nothing_more(callers[-1]):
            return NotApplicable(f"asked for {named}, a call returns what it returns without")
        if arguments.caches and _comes_from_outside(bench, arguments):
            return NotApplicable(f"the call takes {named}, and returns nothing to go on with")
        if _one_at_a_time(callers[-1]):
            return NotApplicable("it takes one position at a time: there is no whole to compare")
        clash = next((c.clash for c in callers if c.clash is not None), None)
        if clash is not None and all(SURE.search(n.lower()) for n in arguments.caches):
            return Known(_clashing(named, callers[0], clash), callers[0].refused)
        refused = next((c.refused for c in callers if c.refused), "")
        why = f"no way was found to decode step by step with {named}"
        return _open(arguments, f"{why} ({refused})" if refused else why)
    return _departing(arguments, named, *best)


def _hangs_on_a_tie(caller: Caller, trial: Trial) -> bool:
    """Return whether the call on the whole sequence picks among equal numbers."""
    try:
        whole = recording_of(caller, trial, 0, caller.tokens)
    except Exception:  # user code, or code that cannot be recorded
        return False
    return picks_among_equals(Dependence(whole))


def _clashing(named: str, caller: Caller, at: Span) -> CacheCheck:
    """Return that the module refuses its own cache: it joins it along another axis."""
    infinite = float("inf")
    detail = "past and present differ in length, which is the axis to join along"
    return CacheCheck(named, False, caller.cached, infinite, infinite, "axis", at, detail)


def _comes_from_outside(bench: Bench, arguments: Arguments) -> bool:
    """Return whether a call returns its states alone, and nothing makes it return a cache."""
    outputs = [n for n in bench.recording.outputs if is_number(bench.recording, n)]
    return len(outputs) == 1 and not arguments.switches


def _one_at_a_time(caller: Caller) -> bool:
    """Return whether a single position is accepted where several are refused."""
    for plan in plans(caller):
        try:
            caller.run(caller.fresh(), plan, 0, 1, plan.start())
        except NotRunError:
            continue
        try:
            caller.run(caller.fresh(), plan, 0, 2, plan.start())
        except NotRunError:
            return True
    return False


def callers_of(subject: Subject, bench: Bench, arguments: Arguments) -> list[Caller]:
    """Return callers with weights drawn anew (a table that starts at 0 hides a fault), then its own."""
    module = fresh_module(subject)
    if not isinstance(module, nn.Module):
        return [Caller(subject, module, arguments, lengths) for lengths in LENGTHS]
    drawn = fresh_module(subject)
    known = dict(drawn.named_parameters())
    with torch.no_grad():
        for name, value in random_parameters(bench.recording, 0).items():
            if name in known and known[name].shape == value.shape:
                known[name].copy_(value)
    weights = (drawn, module)
    return [Caller(subject, held, arguments, n) for n in LENGTHS for held in weights]


def _tolerance(caller: Caller, trial: Trial) -> float:
    held = caller.sequences.values()
    parameters = caller.module.parameters() if isinstance(caller.module, nn.Module) else ()
    coarse = trial.coarse or any(t.dtype in COARSE for t in [*held, *parameters])
    return HALF if coarse else ROUNDING


def _rank(trial: Trial) -> tuple[bool, bool, bool, float]:
    return len(trial.plan.places) > 0, trial.reads, trial.grows, -max(trial.gaps)


def _departing(arguments: Arguments, named: str, caller: Caller, trial: Trial) -> Fact[CacheCheck]:
    """Return how `trial` departs from the whole, unless there is a reason why it may."""
    if max(trial.gaps) <= _tolerance(caller, trial):
        return NotApplicable(f"no step reads what {named} holds")
    sure = any(SURE.search(n.lower()) for n in arguments.caches) or not arguments.caches
    comes_back = trial.place.startswith("output") and bool(trial.sizes[0])
    unread = sure and comes_back and not trial.reads and _fills(caller, trial)
    if not unread and not (trial.reads and (trial.grows or sure)):
        return NotApplicable(f"{named} holds no growing row for each position")
    if trial.sizes[0] and not any(caller.cached in size for size in trial.sizes[0]):
        return NotApplicable(f"{named} holds no row for each position")
    if not trial.grows and not unread and _keeps_few(caller, trial):
        return NotApplicable(f"{named} keeps a fixed number of positions")
    if (why := _no_reference(caller, trial)) is not None:
        return NotApplicable(why)
    if set(arguments.places) - {name for name, _ in trial.plan.places}:
        return _open(arguments, f"how {' and '.join(arguments.places)} are to be told is not known")
    if arguments.tables:
        return _open(arguments, f"how {' and '.join(arguments.tables)} are to be cut is not known")
    step = next(i for i, gap in enumerate(trial.gaps) if gap > _tolerance(caller, trial))
    found = departure(caller, trial, step)
    return Known(
        CacheCheck(
            named, False, caller.chunks()[step][1] - 1, trial.changes[step], max(trial.gaps),
            found.cause, found.span, found.detail, found.misaligned, trial.place,
        ),
        f"{caller.cached} positions in one call, then {_at_a_time(caller)}",
    )  # fmt: skip


def _at_a_time(caller: Caller) -> str:
    return "one at a time" if caller.step == 1 else f"{caller.step} at a time"


def _fills(caller: Caller, trial: Trial) -> bool:
    """Return whether what comes back is made of the sequence, and longer the more positions there are."""
    if size_after(caller, trial, caller.tokens) in (None, trial.sizes[0]):
        return False
    return holds_the_sequence(caller, trial)


def _keeps_few(caller: Caller, trial: Trial) -> bool:
    """Return whether one call on the whole sequence gives a cache no longer than a shorter one does."""
    if not trial.sizes[0]:
        return False
    whole = size_after(caller, trial, caller.tokens)
    return whole is None or whole in (trial.sizes[0], size_after(caller, trial, caller.tokens - 1))


def _no_reference(caller: Caller, trial: Trial) -> str | None:
    """Return why the whole sequence need not give what the steps give, None if it must."""
    plan = trial.plan
    try:
        whole = main_output(caller.run(caller.fresh(), plan, 0, caller.tokens, plan.start()))
        again = main_output(caller.run(caller.fresh(), plan, 0, caller.tokens, plan.start()))
        shorter = main_output(caller.run(caller.fresh(), plan, 0, caller.tokens - 1, plan.start()))
    except NotRunError as error:
        return str(error)
    if whole is None or again is None or shorter is None:
        return "the call returns no numbers"
    if not torch.equal(whole, again):
        return "two equal calls differ"
    axes = [
        a
        for a in range(whole.dim() - 1)
        if whole.shape[a] == caller.tokens and shorter.shape[a] == caller.tokens - 1
    ]
    if not axes:
        return None
    gap = (whole.narrow(axes[0], 0, caller.tokens - 1) - shorter).abs().max()
    if bool(gap > ROUNDING * whole.abs().max()):
        return "in a call on the whole sequence later positions reach earlier ones"
    return None
