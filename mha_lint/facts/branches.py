"""The other branches of a subject: each flag that its code tests is flipped, and the call made again.

Flags are boolean attributes that the user's code tests, and boolean arguments of ``forward``. A mask of
keys that may be left out is left out, once.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.lines import at_keyword
from mha_lint.facts.causal.patterns import UNMASKED, Pattern, patterns_of
from mha_lint.facts.classes import ClassSource, class_sources
from mha_lint.facts.masks.levels import Levels, levels_of
from mha_lint.facts.masks.steps import steps_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.output import output_path
from mha_lint.facts.places import span_of
from mha_lint.facts.scale import measure_gains, scale_span
from mha_lint.facts.sizes import bench_of
from mha_lint.model.facts import BranchMask, BranchScale, Fact, Kind, Known, Scale
from mha_lint.model.source import Span
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

MOST = 4
"""Flags that are flipped: each costs a build and a recording."""
FACTORS = frozenset(["mul", "div", "true_divide", "multiply", "divide"])
ON_MASKS = re.compile(
    r"caus|mask|direct|decod|encod|autoreg|window|local|global|sparse|pad|cach|past|stream|prefix|full"
    r"|both|future|look|generat|infer|prefill|step|increment|cross"
)
"""Flags that are there to change what is hidden."""
OTHER_INPUTS = ("training", "batch_first", "return_dict", "inplace", "bias", "verbose", "debug")
"""Flags that ask for other inputs, or change no computation."""


@dataclass(slots=True)
class Branch:
    """The subject with one flag flipped: ``flag`` had ``value`` in the call that was stated.

    ``value`` None: ``flag`` is an argument that was given, and is left out on this branch.
    """

    flag: str
    value: bool | None
    subject: Subject
    bench: Bench

    @property
    def label(self) -> str:
        """Return the state of the flag on this branch, as a user would write it."""
        return f"{self.flag}={None if self.value is None else not self.value}"

    @property
    def here(self) -> str:
        """Return the state of the flag in the call that was stated."""
        return f"{self.flag} given" if self.value is None else f"{self.flag}={self.value}"


def branches_of(subject: Subject) -> list[Branch]:
    """Return the branches that could be recorded; user code that fails on one leaves it out."""
    found: list[Branch] = []
    for flag, value, other in _flipped(subject):
        bench = bench_of(other)
        if bench is not None and bench.sites:
            found.append(Branch(flag, value, other, bench))
    return found


def _flipped(subject: Subject) -> Iterator[tuple[str, bool | None, Subject]]:
    """Yield (flag, its value, the subject with the other value), built anew."""
    yield from _left_out(subject)
    flags = [(n, v, False) for n, v in _attributes(subject.module)] + [
        (n, v, True) for n, v in _arguments(subject)
    ]
    for flag, value, passed in flags[:MOST]:
        try:
            other = subject.rebuilt()
        except (Exception, SystemExit):
            return
        if passed:
            given = _passed(other, flag, not value)
            if given is None:
                continue
            other = given
        elif isinstance(other.module, nn.Module):
            for module in other.module.modules():
                if vars(module).get(flag) is value:
                    setattr(module, flag, not value)
        yield flag, value, other


def _left_out(subject: Subject) -> Iterator[tuple[str, None, Subject]]:
    """Yield the subject without the mask of keys, (B, T) of yes and no, that its call need not give."""
    given = dict(zip(subject.argument_names, subject.args, strict=False)) | subject.kwargs
    for name, parameter in _parameters(subject).items():
        value = given.get(name)
        if parameter.default is not None or not isinstance(value, Tensor):
            continue
        if value.dim() != 2 or value.shape[0] == value.shape[1] or value.is_complex():
            continue
        if value.dtype is torch.bool or bool(((value == 0) | (value == 1)).all()):
            try:
                other = _passed(subject.rebuilt(), name, None)
            except (Exception, SystemExit):
                return
            if other is not None:
                yield name, None, other
            return


def _parameters(subject: Subject) -> Mapping[str, inspect.Parameter]:
    called = subject.module.forward if isinstance(subject.module, nn.Module) else subject.module
    try:
        return inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}


def _passed(subject: Subject, name: str, value: bool | None) -> Subject | None:
    """Return `subject` with another value of one argument of its call."""
    names = list(subject.argument_names)
    if name in names[: len(subject.args)]:
        at = names.index(name)
        args = (*subject.args[:at], value, *subject.args[at + 1 :])
        return replace(subject, args=args)
    kwargs = {**subject.kwargs, name: value}
    positional = tuple(names[: len(subject.args)])
    return replace(subject, kwargs=kwargs, argument_names=(*positional, *kwargs))


def _arguments(subject: Subject) -> list[tuple[str, bool]]:
    """Return the boolean arguments of the call, with the value that each has."""
    given = dict(zip(subject.argument_names, subject.args, strict=False)) | subject.kwargs
    found: list[tuple[str, bool]] = []
    for name, parameter in _parameters(subject).items():
        value = given.get(name, parameter.default)
        if isinstance(value, bool) and name not in OTHER_INPUTS:
            found.append((name, value))
    return found


def _attributes(subject: object) -> list[tuple[str, bool]]:
    """Return the boolean attributes that the user's forward code tests."""
    found: dict[str, bool] = {}
    for one in subject.modules() if isinstance(subject, nn.Module) else ():
        cls = type(one)
        if cls.__module__.startswith("torch."):
            continue
        tested = _tested(cls)
        for name, value in vars(one).items():
            if isinstance(value, bool) and name in tested and name not in OTHER_INPUTS:
                found.setdefault(name, value)
    return list(found.items())


def _tested(cls: type) -> set[str]:
    return {name for source in class_sources(cls) for name in _tested_in(source)}


@functools.lru_cache(maxsize=1024)
def _tested_in(source: ClassSource) -> frozenset[str]:
    found: set[str] = set()
    functions = [
        f for f in ast.walk(source.node)
        if isinstance(f, ast.FunctionDef) and f.name != "__init__"
    ]  # fmt: skip
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.If | ast.IfExp):
                found |= {
                    n.attr for n in ast.walk(node.test)
                    if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"
                }  # fmt: skip
    return frozenset(found)


def branch_scales(
    branches: list[Branch], bench: Bench, scales: list[Fact[Scale]]
) -> list[tuple[BranchScale, ...]]:
    """Compare the scale of each site on both sides of every flag."""
    out: list[list[BranchScale]] = [[] for _ in bench.sites]
    known = [i for i, s in enumerate(scales) if isinstance(s, Known)]
    for branch in branches:
        flipped = branch.bench
        if len(flipped.sites) != len(bench.sites):
            continue
        for index in known:
            site = flipped.sites[index]
            gains = measure_gains(flipped, site, output_path(flipped, site))
            scale = scales[index]
            assert isinstance(scale, Known)
            if isinstance(gains, str) or gains.normalised or scale.value.normalised:
                continue
            here, there = scale.value.value, gains.value
            if abs(here - there) <= 1e-5 * max(abs(here), abs(there)):
                continue
            unscaled = any(math.isclose(s, 1, rel_tol=1e-5) for s in (here, there))
            if unscaled and _differ_in_factors(bench, flipped):
                continue  # an option that turns the scale off, and nothing else
            first = bench.sites[index]
            out[index].append(
                BranchScale(
                    branch.here,
                    here,
                    there,
                    scale_span(scale) or span_of(first.scores),
                    gains.factors[-1].span if gains.factors else span_of(site.scores),
                )
            )
    return [tuple(o) for o in out]


def _differ_in_factors(one: Bench, other: Bench) -> bool:
    """Return whether one recording is the other one without some factor, and else the same."""
    counts = [
        Counter(op(n) for n in b.recording.graph.nodes if n in b.dependence.live)
        for b in (one, other)
    ]
    less, more = sorted(counts, key=lambda c: c.total())
    return not less - more and set(more - less) <= FACTORS


def branch_masks(branches: list[Branch], bench: Bench) -> list[tuple[BranchMask, ...]]:
    """Compare what each site hides on both sides of every flag that is not about masks.

    Without the mask of keys that a call gave, more is visible as it should be: there it counts only
    that a causal mask comes back.
    """
    out: list[list[BranchMask]] = [[] for _ in bench.sites]
    for branch in branches:
        left_out = branch.value is None
        option = ON_MASKS.search(branch.flag.lower()) is not None and not left_out
        if len(branch.bench.sites) != len(bench.sites) or option:
            continue
        for index, (one, other) in enumerate(zip(bench.sites, branch.bench.sites, strict=True)):
            there, here = Side(branch.label, branch.bench, other), Side(branch.here, bench, one)
            found = None if left_out else _lost(there, here)
            found = found or _lost(here, there)
            if found is not None and not (left_out and not found.future):
                out[index].append(found)
    return [tuple(o) for o in out]


@dataclass(frozen=True, slots=True)
class Side:
    """One site with a flag in the state ``flag``."""

    flag: str
    bench: Bench
    site: Site

    @property
    def fused(self) -> bool:
        """Return whether attention is one call of torch here."""
        return "lowered" in self.site.all[0].context.meta


def _lost(one: Side, other: Side) -> BranchMask | None:
    """Return what `one` leaves visible and `other` hides."""
    here, there = _levels(one.bench, one.site), _levels(other.bench, other.site)
    if here is None or there is None or here.visible.shape != there.visible.shape:
        return None
    lost = here.visible & ~there.visible
    if not bool(lost.any()):
        return None
    first, second = (patterns_of(s.bench, s.site.all[0]) for s in (one, other))
    return BranchMask(
        one.flag,
        future=bool(first) and set(first) <= set(UNMASKED) and set(second) == {Pattern.CAUSAL},
        pairs=int(lost.sum((1, 2)).max()),
        span=at_keyword(span_of(one.site.all[0].context)),
        other_span=_mask_span(other.bench, other.site.all[0]),
        apart=one.fused != other.fused,
    )


def _levels(bench: Bench, site: Site) -> Levels | None:
    first = site.all[0]
    if first.kind not in (Kind.SELF, Kind.CROSS) or first.normaliser.element != "softmax":
        return None
    try:
        return levels_of(bench, first)
    except (NotArrangedError, RuntimeError, IndexError):
        return None


def _mask_span(bench: Bench, site: Site) -> Span | None:
    steps = steps_of(bench, site)
    return span_of(steps[0].node) if steps else span_of(site.normaliser.logits)
