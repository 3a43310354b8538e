"""The dropout that acts in training mode, beside the one that was configured.

Rates are told apart by giving each argument of the construction a rate of its own: what acts on the
weights then has the number of the argument that sets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from torch import nn
from torch.fx import Node

from mha_lint.capture import CaptureError, Recording, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.configured import names_read_around
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.places import keyword_span, span_of
from mha_lint.facts.rates import (
    TRIED,
    is_drawn_against,
    is_for_attention,
    is_for_others,
    keeps,
    off_by_default,
    rates_of,
    stored_at,
    unnamed_rates,
    with_rates,
)
from mha_lint.model.facts import Fact, Known, NotApplicable, Unknown
from mha_lint.model.numeric_facts import RateFault, TrainingDropout
from mha_lint.model.source import Span
from mha_lint.sites.dependence import Dependence, op, stack_of
from mha_lint.targets.subject import Subject

SAME = 1e-6
RANDOM = frozenset(
    (
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "bernoulli",
        "multinomial", "normal", "uniform", "exponential", "lstm", "gru", "rnn_tanh", "rnn_relu",
    )
)  # fmt: skip
"""Operations that may be a dropout that is written by hand."""


def training_dropout(subject: Subject, bench: Bench) -> Fact[tuple[TrainingDropout, ...]]:
    """Return the dropouts that act in training mode otherwise than configured."""
    if not isinstance(subject.module, nn.Module):
        return NotApplicable("a function knows no training mode")
    named = rates_of(subject, names_read_around(bench))
    rates = {n: r for n, r in named.items() if not is_drawn_against(subject, n)}
    if not rates and not any(_drops(m) for m in subject.module.modules()):
        return NotApplicable("no dropout is configured")
    if not bench.sites:
        return NotApplicable("there is no attention")
    tried = dict(zip(rates, TRIED, strict=False))
    trained = _trained(subject, bench, tried)
    if isinstance(trained, str):
        return Unknown(f"the module could not be recorded in training mode: {trained}")
    found = list(_twice(trained, rates))
    if not any(_acts(n) for n in bench.dependence.live):  # what drops in eval mode is told as such
        found += _astray(subject, bench, trained, rates)
        found += _mirrored(subject, bench)
    return Known(
        tuple(found), "recorded in training mode, with a rate of its own for each argument"
    )


def _drops(module: nn.Module) -> TypeGuard[nn.modules.dropout._DropoutNd]:
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0


@dataclass(frozen=True, slots=True)
class _Trained:
    """A recording in training mode.

    ``rates``: those that were tried, by argument. ``all``: every dropout that acts; ``by_site``:
    for each single site those on its weights, as far as that can be told.
    """

    recording: Recording
    dependence: Dependence
    rates: dict[str, float]
    by_site: tuple[tuple[Node, ...], ...]
    all: tuple[Node, ...]

    @property
    def weights(self) -> tuple[Node, ...]:
        """Return the dropouts on the weights of any site."""
        return tuple(node for nodes in self.by_site for node in nodes)


def _trained(subject: Subject, bench: Bench, tried: Mapping[str, float]) -> _Trained | str:
    """Record `subject` in training mode, built with the rates `tried` where it takes them."""
    try:
        build, taken = with_rates(subject, tried)
        other = subject.remade(build) if taken else subject.rebuilt()
        recording = _recorded(other)
        if taken and recording is None:
            taken = {}
            recording = _recorded(subject.rebuilt())
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    if recording is None:
        return "the call fails there"
    dependence = Dependence(recording)
    acting = tuple(n for n in recording.graph.nodes if n in dependence.live and _acts(n))
    paths = _weight_paths(bench, recording, dependence)
    by_site = tuple(tuple(n for n in acting if n in path) for path in paths)
    return _Trained(recording, dependence, taken, by_site, acting)


def _recorded(subject: Subject) -> Recording | None:
    assert isinstance(subject.module, nn.Module)
    with subject.environment():
        subject.module.train()
        try:
            return record(
                subject.module,
                subject.args,
                subject.kwargs,
                argument_names=subject.argument_names,
                copy=False,
                compare=False,
            )
        except CaptureError:
            return None


def _acts(node: Node) -> bool:
    return "dropout" in op(node) and _rate(node) > 0


def _rate(node: Node) -> float:
    """Return the rate of a dropout that is on, else 0."""
    names = dict(zip(("p", "training"), node.args[1:], strict=False)) | dict(node.kwargs)
    rate, training = names.get("p", 0.5), names.get("training", names.get("train", True))
    return float(rate) if isinstance(rate, int | float) and training else 0.0


def _weight_paths(
    bench: Bench, recording: Recording, dependence: Dependence
) -> list[frozenset[Node]]:
    """Return what lies between normaliser and values of each single site, in the new recording.

    The places are those of the recording in eval mode: a dropout stands in between in either.
    """
    found: list[frozenset[Node]] = []
    for member in (m for s in bench.sites for m in s.all):
        ends = [
            _same_call(bench.recording, n, recording)
            for n in (member.normaliser.weights, member.context)
        ]
        if ends[0] is not None and ends[1] is not None:
            found.append(frozenset(dependence.between(ends[0], ends[1])) - {ends[1]})
    return found


def _same_call(old: Recording, node: Node, new: Recording) -> Node | None:
    """Return the node of `new` that makes the same operation at the same place, as often before it."""
    key = _place(node)
    before = [n for n in old.graph.nodes if _place(n) == key]
    after = [n for n in new.graph.nodes if _place(n) == key]
    return after[before.index(node)] if len(before) == len(after) else None


def _place(node: Node) -> tuple[Any, ...]:
    return op(node), node.meta.get("module"), tuple(f.span for f in stack_of(node))


# --- what is wrong ----------------------------------------------------------------------------------


def _twice(trained: _Trained, rates: Mapping[str, float]) -> Iterator[TrainingDropout]:
    """Yield each dropout on weights that another one dropped before."""
    stated = {rate: rates[name] for name, rate in trained.rates.items()}
    for nodes, node in [(one, node) for one in trained.by_site for node in one]:
        above = trained.dependence.ancestors([node])
        first = [n for n in nodes if n is not node and n in above]
        if first:
            one, other = (stated.get(_rate(n), _rate(n)) for n in (first[0], node))
            yield TrainingDropout(
                RateFault.TWICE, configured=other, acting=1 - (1 - one) * (1 - other),
                span=span_of(node), kept_at=span_of(first[0]),
            )  # fmt: skip


def _astray(
    subject: Subject, bench: Bench, trained: _Trained, rates: Mapping[str, float]
) -> Iterator[TrainingDropout]:
    """Yield each argument whose rate does not act as its name says."""
    own = {name: trained.rates.get(name) for name in rates}
    for name, rate in own.items():
        if rate is None:
            if not trained.all and not _hand_made(trained) and not _idle(trained, rates[name]):
                if off_by_default(subject, name):
                    continue
                yield _told(RateFault.NEVER, subject, bench, name, rates, rates[name])
            continue
        kept = [n for n in trained.all if abs(_rate(n) - (1 - rate)) < SAME]
        plain = [n for n in trained.all if abs(_rate(n) - rate) < SAME]
        wrong = plain if keeps(name) else kept
        if wrong:
            yield _told(
                RateFault.KEPT, subject, bench, name, rates, rate,
                acting=_rate(wrong[0]), span=_span(trained, wrong[0]),
            )  # fmt: skip
            continue
        if keeps(name) and kept:
            continue
        others = _rates_on_weights(trained)
        if plain:
            yield from _exchanged(subject, bench, trained, name, rates, plain)
        elif _idle(trained, rate) or _matters(subject, bench, trained, name):
            continue  # declared and never called, or at work in some other way
        elif is_for_attention(name) and others:
            node, other = others[0]
            fault = RateFault.OTHER if other else RateFault.FIXED
            yield _told(
                fault, subject, bench, name, rates, rate, acting=_rate(node), other=other,
                span=_span(trained, node),
            )  # fmt: skip
        elif is_for_attention(name) or (
            not trained.all and not _hand_made(trained) and not off_by_default(subject, name)
        ):
            yield _told(RateFault.NEVER, subject, bench, name, rates, rate)
        elif others and all(not other for _, other in others) and not is_for_others(name):
            node = others[0][0]
            yield _told(
                RateFault.FIXED, subject, bench, name, rates, rate,
                acting=_rate(node), span=_span(trained, node),
            )  # fmt: skip


def _mirrored(subject: Subject, bench: Bench) -> Iterator[TrainingDropout]:
    """Yield an argument, whatever its name, that is small and drops as much as it should keep."""
    assert isinstance(subject.module, nn.Module)
    layers = [float(m.p) for m in subject.module.modules() if _drops(m)]
    for name, rate in unnamed_rates(subject).items():
        if not any(abs(p - (1 - rate)) < SAME for p in layers):
            continue
        trained = _trained(subject, bench, {name: TRIED[0]})
        if isinstance(trained, str) or name not in trained.rates:
            continue
        for node in trained.weights:
            if abs(_rate(node) - (1 - TRIED[0])) < SAME:
                yield _told(
                    RateFault.KEPT, subject, bench, name, {name: rate}, TRIED[0],
                    acting=_rate(node), span=_span(trained, node),
                )  # fmt: skip


def _rates_on_weights(trained: _Trained) -> list[tuple[Node, str]]:
    """Return the dropouts on the weights with the argument that sets each, "" for none."""
    return [
        (node, next((n for n, r in trained.rates.items() if abs(_rate(node) - r) < SAME), ""))
        for node in trained.weights
    ]


def _exchanged(
    subject: Subject,
    bench: Bench,
    trained: _Trained,
    name: str,
    rates: Mapping[str, float],
    plain: list[Node],
) -> Iterator[TrainingDropout]:
    """Yield an argument for the weights that acts elsewhere, while one for elsewhere acts there."""
    if not is_for_attention(name) or any(n in trained.weights for n in plain):
        return
    for node, other in _rates_on_weights(trained):
        if other and is_for_others(other) and not is_for_attention(other):
            yield _told(
                RateFault.OTHER, subject, bench, name, rates, trained.rates[name],
                acting=_rate(node), other=other, span=_span(trained, node),
            )  # fmt: skip
            return


def _hand_made(trained: _Trained) -> bool:
    """Return whether random numbers are drawn that may be a dropout written by hand."""
    return any(
        op(n) in RANDOM and n in trained.dependence.live for n in trained.recording.graph.nodes
    )


def _idle(trained: _Trained, rate: float) -> bool:
    """Return whether some dropout layer holds the rate: that it is never called is told as such."""
    module = trained.recording.module
    return module is not None and any(
        isinstance(m, nn.modules.dropout._DropoutNd) and abs(m.p - rate) < SAME
        for m in module.modules()
    )


def _matters(subject: Subject, bench: Bench, trained: _Trained, name: str) -> bool:
    """Return whether any number of the recorded call follows the argument `name`."""
    others = {n: r for n, r in trained.rates.items() if n != name}
    moved = _trained(subject, bench, {**others, name: TRIED[-1] + 0.04})
    if isinstance(moved, str) or name not in moved.rates:
        return True
    return _numbers(moved.recording) != _numbers(trained.recording)


def _numbers(recording: Recording) -> Counter[tuple[Any, ...]]:
    return Counter(
        (op(n), *(a for a in (*n.args, *n.kwargs.values()) if isinstance(a, float)))
        for n in recording.graph.nodes
        if "dropout" not in op(n) or _acts(n)
    )


def _told(
    fault: RateFault,
    subject: Subject,
    bench: Bench,
    name: str,
    rates: Mapping[str, float],
    tried: float,
    *,
    acting: float | None = None,
    other: str = "",
    span: Span | None = None,
) -> TrainingDropout:
    weights = bench.sites[0].all[0].normaliser.weights
    return TrainingDropout(
        fault, name, rates[name], tried, acting, other,
        is_for_attention(name) and fault is not RateFault.KEPT,
        span or _made_by(bench.recording, weights) or span_of(weights),
        stored_at(subject, name),
    )  # fmt: skip


def _span(trained: _Trained, node: Node) -> Span | None:
    """Return where the rate of a dropout is set: the layer's declaration, else the call."""
    declared = _made_by(trained.recording, node)
    return declared or keyword_span(span_of(node), "dropout_p") or span_of(node)


def _made_by(recording: Recording, node: Node) -> Span | None:
    """Return where the layer of torch in which `node` runs is declared, None outside of one."""
    module, path = recording.module, str(node.meta.get("module", ""))
    owner = recording.modules.get(path)
    if owner is None or owner is module or not type(owner).__module__.startswith("torch."):
        return None
    return declared_at(module, path)
