"""The same subject at other sizes."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Node

from mha_lint.capture import CaptureError, Recording, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import measure_dims
from mha_lint.facts.output import output_path
from mha_lint.facts.places import span_of
from mha_lint.facts.scale import Measured, measure_gains
from mha_lint.model.facts import Dims, Fact, Known, SizeFailure
from mha_lint.model.source import Span
from mha_lint.sites.dependence import op
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.slots import BuildExpression
from mha_lint.targets.subject import Subject

TRIES = 3
"""Resized subjects to try: each costs a build and a recording."""
LARGEST = 1 << 24
"""Numbers that a call may compute at another size, if it computes fewer at the first."""


@dataclass(slots=True)
class SecondSize:
    """A bench at other sizes whose sites correspond one to one to those of the first."""

    bench: Bench
    subject: Subject


def second_size(subject: Subject, first: Bench) -> SecondSize | None:
    """Return the subject at the first other size that builds, runs and holds the same sites."""
    for index, other in enumerate(_resized(subject)):
        if index >= TRIES:
            return None
        bench = bench_of(other, most=max(LARGEST, _computed(first.recording)))
        if bench is not None and _corresponds(first, bench):
            return SecondSize(bench, other)
    return None


def _resized(subject: Subject) -> Iterator[Subject]:
    try:
        yield from subject.resized()
    except (Exception, SystemExit):  # user code at sizes that its author never tried
        return


def bench_of(subject: Subject, most: int | None = None) -> Bench | None:
    """Record `subject`; None when that fails, the recording is not faithful, or its call computes
    more than `most` numbers, so that many runs of it would take too long.
    """
    try:
        with subject.environment():
            recording = record(
                subject.module, subject.args, subject.kwargs, argument_names=subject.argument_names
            )
    except (CaptureError, Exception):
        return None
    if not recording.faithful.ok or (most is not None and _computed(recording) > most):
        return None
    try:
        return Bench.of(recording, seed=1)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None


def _computed(recording: Recording) -> int:
    """Return how many numbers one call computes."""
    made = [recording.values.get(n) for n in recording.graph.nodes if n.op == "call_function"]
    return sum(x.numel() for x in made if isinstance(x, torch.Tensor))


def _corresponds(first: Bench, other: Bench) -> bool:
    return [s.kind for s in first.sites] == [s.kind for s in other.sites]


def scale_elsewhere(
    second: SecondSize | None, index: int
) -> tuple[Measured | str, Dims, dict[str, object]] | None:
    """Return the gains, sizes and arguments of site `index` at the second size."""
    if second is None:
        return None
    site = second.bench.sites[index]
    dims = measure_dims(second.bench, site)
    if not isinstance(dims, Known):
        return None
    path = output_path(second.bench, site)
    return measure_gains(second.bench, site, path), dims.value, dict(second.subject.stated)


def size_failures(subject: Subject, bench: Bench) -> tuple[SizeFailure, ...]:
    """Change widths that merely coincide and say in attention's terms what breaks."""
    try:
        tried = subject.decoupled()
    except (Exception, SystemExit):
        return ()
    found: list[SizeFailure] = []
    for one in tried:
        if one.error is None:
            continue
        span = user_line(one.error, subject.span.path)
        text = f"{type(one.error).__name__}: {one.error}".splitlines()[0][:200]
        if span is None or not isinstance(one.error, RuntimeError):
            continue
        kind, detail = _classify(bench, span, str(one.error))
        if one.doubtful and kind != "weight-orientation":
            continue
        found.append(SizeFailure(one.change, text, kind, detail, span))
    return tuple(found)


def _layers_own(bench: Bench, name: str) -> bool:
    """Return whether a parameter belongs to a layer of torch, which applies it the right way."""
    owner = bench.recording.modules.get(name.rpartition(".")[0])
    return owner is not None and type(owner).__module__.startswith("torch.")


def ignored_head_count(
    subject: Subject, bench: Bench, dims: list[Fact[Dims]], span: Span | None
) -> SizeFailure | None:
    """Return the failure of code whose number of heads does not follow the argument that sets it.

    Told only when the measured count differs from an argument that is called a number of heads, and
    stays the same when that alone is changed; branches with a share of the heads each do change. Of an
    argument that merely divides the width, as the side of a window may, the same proves nothing.
    """
    try:
        expression = BuildExpression(subject.build, subject.namespace)
        slots = [s for s in expression.slots if role_of(s.name) is Role.HEADS]
    except (SyntaxError, ValueError):
        return None
    known = [d.value for d in dims if isinstance(d, Known)]
    if len(slots) != 1 or not known or len(known) != len(dims):
        return None
    (slot,) = slots
    counts = {d.num_heads for d in known}
    if (
        len(counts) != 1
        or slot.value in counts | {d.num_kv_heads for d in known}
        or slot.value < 2
        or counts == {1}
    ):
        return None
    width = known[0].d_model
    for other in (
        n for n in range(2, width + 1) if width % n == 0 and n != slot.value and n not in counts
    ):
        try:
            made = subject.remade(expression.with_values({slot: other}))
        except (Exception, SystemExit):
            continue
        again = bench_of(made)
        if again is None or len(again.sites) != len(bench.sites):
            return None
        found = [measure_dims(again, s) for s in again.sites]
        if {d.value.num_heads for d in found if isinstance(d, Known)} != counts:
            return None
        (count,) = counts
        return SizeFailure(
            f"{slot.name}={slot.value}",
            "",
            "head-width",
            f"the code splits into {count} heads, and into {count} with {slot.name}={other} as well",
            span,
        )
    return None


def user_line(error: BaseException, path: str) -> Span | None:
    """Return the innermost line of `path` in the traceback of `error`."""
    found: Span | None = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == path and frame.lineno is not None:
            column = (frame.colno or 0) + 1
            end = frame.end_lineno or frame.lineno
            found = Span(path, frame.lineno, column, end, (frame.end_colno or 0) + 1)
    return found


def _classify(bench: Bench, span: Span, error: str) -> tuple[str, str]:
    """Tell by what stands on that line in the recording at the first size.

    Only the views between a projection and its operand are a split, only those between the context
    and what W_O reads a merge: windows and patches around them are not the heads' business.
    """
    lines = range(span.line, max(span.line, span.end_line) + 1)
    here = {
        n
        for n in bench.recording.graph.nodes
        if n.op == "call_function"
        and (s := span_of(n)) is not None
        and s.path == span.path
        and s.line in lines
    }
    members = [m for s in bench.sites for m in s.all]
    layout = {n for n in here if n.meta.get("op") in ("view", "reshape", "flatten", "unflatten")}
    between = bench.dependence.between
    if "is invalid for input of size" in error:
        merges = {
            n
            for s in bench.sites
            for m in s.all
            for n in between(m.context, output_path(bench, s).merged)
        }
        if layout & merges:
            return "merge-width", "the heads are merged into another width than they have"
        operands_ = [
            o for m in members for o in (m.q, m.k, m.v) if o is not None and o.source is not None
        ]
        splits = {
            n for o in operands_ if o.source is not None for n in between(o.source.call, o.node)
        }
        if layout & splits:
            return "head-width", "the heads are split by another width than the projection has"
        return "other", ""
    exact = [n for n in here if span_of(n) == span]
    for node in sorted(exact or here, key=bench.dependence.order.__getitem__):
        learned = bench.finder.sources.learned_map(node)
        raw = _raw_weight(learned[1]) if learned is not None else None
        contraction = bench.finder.sources.contraction(node)
        if raw is None or contraction is None or learned is None:
            continue
        weight, parameter = raw
        name = str(parameter.meta.get("parameter"))
        size = tuple(bench.recording.values[weight].shape)
        square = len(size) == 2 and size[0] == size[1]
        if square and not _layers_own(bench, name) and _fits_turned(error):
            _, labels = contraction.side(contraction.left is learned[1])
            axis = next(i for i, x in enumerate(labels) if x in contraction.summed)
            turned = weight is not learned[1]
            return (
                "weight-orientation",
                f"{name} is contracted over its axis {1 - axis if turned else axis}",
            )
    after = bench.dependence.descendants({m.context for m in members})
    maps = [n for n in here & after if bench.finder.sources.learned_map(n) is not None]
    if maps and "size" in error and "must match the size of tensor" not in error:
        return "merge-width", "the output projection expects another width than the heads have"
    return "other", ""


def _fits_turned(error: str) -> bool:
    """Return whether the transpose of the second matrix would have fitted, where the error tells."""
    found = re.search(
        r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and \d+x(\d+)\)", error
    )
    return found is None or found[1] == found[2]


def _raw_weight(node: Node) -> tuple[Node, Node] | None:
    """Return the matrix that `node` is, or is the transpose of, and the parameter that it is cut from."""
    while node.op != "get_attr" and op(node) in ("T", "mT", "t", "transpose", "permute"):
        node = node.all_input_nodes[0]
    matrix = node
    while node.op != "get_attr" and op(node) in ("index", "getitem", "select", "unbind"):
        node = node.all_input_nodes[0]
    return (matrix, node) if node.op == "get_attr" and node.meta.get("parameter") else None
