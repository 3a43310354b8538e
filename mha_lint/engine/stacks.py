"""A model whose layers are alike, measured on some of them.

The whole call is recorded. Where layers of a list turn out to compute the same in every respect but
for their weights, the model is made again with one of each kind, and recorded: if this gives the
same calls as those layers in the whole, what is measured on it holds for the whole.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn
from torch.fx import Node

from mha_lint.capture import Recording, record
from mha_lint.engine.layers import kinds
from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.model.finding import Finding
from mha_lint.model.report import SiteReport, TargetReport
from mha_lint.sites.alike import Constants, Row, Stack, Stretches, products_of_data, stacks_of
from mha_lint.targets.stacks import Shortening, lists_in
from mha_lint.targets.subject import Subject

LEAST = 5
"""Layers of a list: of fewer, hardly one could be left out."""


@dataclass(frozen=True, slots=True)
class Shorter:
    """A subject with some of its layers left out, its sites, and what it stands for in words."""

    subject: Subject
    bench: Bench
    notes: tuple[str, ...]


def shorter(subject: Subject, recording: Recording) -> Shorter | None:
    """Return `subject` with one layer of each kind, None where each layer has to be measured."""
    module = subject.module
    if not isinstance(module, nn.Module) or not recording.faithful.ok:
        return None
    lists = dict(lists_in(module, LEAST))
    stacks = stacks_of(recording, list(lists.values())) if lists else []
    if not stacks or any(_picks_by_number(m) for m in _around(module, lists)):
        return None
    constants = Constants()
    whole = Stretches(recording, stacks, constants)
    if whole.reads_many():
        return None
    products = products_of_data(recording)
    try:
        groups = [_kinds(stack, whole, module) for stack in stacks]
    except (Exception, SystemExit):  # of the user's own classes, whose objects are compared
        return None
    for more in (0, 1):
        places = [_kept(stack, alike, more) for stack, alike in zip(stacks, groups, strict=True)]
        left_out = [row for s, kept in zip(stacks, places, strict=True) for row in _rest(s, kept)]
        holding = [row for row in left_out if products.intersection(whole.nodes(row))]
        if not holding or not all(whole.follows(row, products) for row in holding):
            return None
        short = [tuple(s[i] for i in kept) for s, kept in zip(stacks, places, strict=True)]
        made = _made(subject, stacks, places)
        if made is not None and _tells(short, made[1], whole, constants):
            rows = _counted(made[1], short, groups, constants)
            bench = Bench.of(made[1])
            if any(len({rows.get(m.context) for m in site.all}) > 1 for site in bench.sites):
                return None  # these are no layers, but the heads of one attention
            return Shorter(made[0], bench, tuple(_notes(stacks, places, groups)))
    return None


def _around(module: nn.Module, lists: Mapping[str, Sequence[str]]) -> Iterator[nn.Module]:
    """Yield the modules that hold one of `lists`, whose code goes through it."""
    for path, held in module.named_modules():
        if not path or any(one == path or one.startswith(f"{path}.") for one in lists):
            yield held


def _picks_by_number(module: nn.Module) -> bool:
    """Return whether code of `module` treats one turn of a loop otherwise, by its number.

    In training, say, or with a cache: this recording need not show it. First and last are kept, and
    turns that repeat are told by what is called.
    """
    return any(
        _picks(part)
        for source in class_sources(type(module))
        for part in source.node.body
        if isinstance(part, ast.FunctionDef) and part.name != "__init__"
    )


def _picks(function: ast.FunctionDef) -> bool:
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.comprehension)]
    counted = {name for loop in loops for name in _counter(loop)}
    return any(
        isinstance(node, ast.Compare) and _of_one(node, counted) for node in ast.walk(function)
    )


def _counter(loop: ast.For | ast.comprehension) -> Iterator[str]:
    target, call = loop.target, loop.iter
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return
    if call.func.id == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    elif call.func.id != "range":
        return
    if isinstance(target, ast.Name):
        yield target.id


def _of_one(node: ast.Compare, counted: set[str]) -> bool:
    """Return whether a number in `counted` is compared with another than the first and the last.

    The last one is told by how many there are: a stated number is that of the whole.
    """
    parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
    if any(isinstance(p, ast.Mod) for p in parts):
        return False
    if not any(isinstance(p, ast.Name) and p.id in counted for p in parts):
        return False
    last = any(
        isinstance(p, ast.BinOp)
        and ast.unparse(p.right) == "1"
        and isinstance(p.left, ast.Call)
        and ast.unparse(p.left.func) == "len"
        for p in parts
    )
    numbers = [p.value for p in parts if isinstance(p, ast.Constant)]
    return not (numbers == [0] or (last and numbers == [1]))


def _kinds(stack: Stack, whole: Stretches, module: nn.Module) -> dict[Row, list[Row]]:
    """Return for each row all those that are alike, in order."""
    columns = [
        kinds({p: module.get_submodule(p) for p in column}) for column in zip(*stack, strict=True)
    ]
    known: dict[Hashable, list[Row]] = {}
    calls = whole.alike(stack)
    for row in stack:
        told = tuple(column[path] for column, path in zip(columns, row, strict=True))
        known.setdefault((calls[row], told), []).append(row)
    return {row: rows for rows in known.values() for row in rows}


def _kept(stack: Stack, alike: Mapping[Row, list[Row]], more: int) -> tuple[int, ...]:
    """Return the places of the first row of each kind, of those before them, and of the last rows."""
    last = len(stack) - 1
    first = {i for i, row in enumerate(stack) if alike[row][0] == row}
    return tuple(i for i in range(last + 1) if i in first or i + 1 in first or i >= last - more)


def _rest(stack: Stack, kept: Sequence[int]) -> Iterator[Row]:
    return (row for index, row in enumerate(stack) if index not in kept)


def _made(
    subject: Subject, stacks: Sequence[Stack], places: Sequence[tuple[int, ...]]
) -> tuple[Subject, Recording] | None:
    """Return `subject` made again with the rows at `places`, and its recording."""
    shortening = Shortening(
        tuple(
            (path.rpartition(".")[0], len(stack), kept)
            for stack, kept in zip(stacks, places, strict=True)
            for path in stack[0]
        )
    )
    maker = subject.maker.shortened(shortening) if subject.maker is not None else None
    if maker is None:
        return None
    try:
        made = maker.make(subject.recipe)
        with maker.environment():
            recording = record(
                made.module, made.args, made.kwargs, argument_names=made.argument_names
            )
    except Exception:  # code that counts on all of its layers
        return None
    if not recording.faithful.ok:
        return None
    short = dataclasses.replace(
        subject,
        module=made.module,
        args=made.args,
        kwargs=made.kwargs,
        namespace=made.namespace,
        maker=maker,
    )
    return short, recording


def _tells(
    stacks: Sequence[Stack], recording: Recording, whole: Stretches, constants: Constants
) -> bool:
    """Return whether `recording` holds what the rows of `stacks` do in the whole, and nothing else."""
    lists = [list(column) for stack in stacks for column in zip(*stack, strict=True)]
    if stacks_of(recording, lists) != list(stacks):
        return False
    own = Stretches(recording, stacks, constants)
    return own.head == whole.head and all(own.keys[row] == whole.keys[row] for row in own.keys)


def _counted(
    recording: Recording,
    stacks: Sequence[Stack],
    groups: Sequence[Mapping[Row, list[Row]]],
    constants: Constants,
) -> dict[Node, Row]:
    """Write to the calls of each row how many it stands for, and return the row of each."""
    held: dict[Node, Row] = {}
    own = Stretches(recording, stacks, constants)
    for stack, alike in zip(stacks, groups, strict=True):
        seen: dict[Row, list[Row]] = {}
        for row in stack:
            seen.setdefault(alike[row][0], []).append(row)
        for rows in seen.values():
            for index, row in enumerate(rows):
                # Of several that are kept of one kind, the first stands for those left out.
                count = len(alike[row]) - len(rows) + 1 if index == 0 else 1
                for node in own.nodes(row):
                    node.meta["repeated"] = count
                    held[node] = row
    return held


def _notes(
    stacks: Sequence[Stack],
    places: Sequence[tuple[int, ...]],
    groups: Sequence[Mapping[Row, list[Row]]],
) -> Iterator[str]:
    for stack, kept, alike in zip(stacks, places, groups, strict=True):
        left_out = list(_rest(stack, kept))
        if left_out:
            like = ", ".join(dict.fromkeys(alike[row][0][0] for row in left_out))
            few, many = len(left_out), len(stack)
            yield f"{few} of {many} layers compute the same as {like}, and were not measured again"


def once(report: TargetReport) -> TargetReport:
    """Return `report` with what several layers show in the same way told once, of the first."""
    kept: dict[Hashable, SiteReport] = {}
    for site in report.sites:
        said = _said(report, site)
        first = kept.setdefault(said, site)
        if first is not site:
            kept[said] = dataclasses.replace(first, repeated=first.repeated + site.repeated)
    names = {site.id: index for index, site in enumerate(kept.values())}
    return dataclasses.replace(
        report,
        sites=tuple(kept.values()),
        findings=_first_of_each(report.findings, names),
        undecided=tuple(u for u in report.undecided if u.site is None or u.site in names),
        crosscheck=tuple(c for c in report.crosscheck if c.site in names),
    )


def _first_of_each(findings: Sequence[Finding], names: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return `findings` without those that say of a later layer what is said of an earlier one."""
    best: dict[Hashable, Finding] = {}
    for one in sorted(findings, key=lambda f: names.get(f.site or "", len(names))):
        best.setdefault(_without_places(one), one)
    chosen = {id(f) for f in best.values()}
    return tuple(f for f in findings if id(f) in chosen)


PLACE = re.compile(r"(?<=[A-Za-z_]\.)\d+")
"""The number of a layer in a path: encoder.layers.3.attention, and no measured one."""


def _without_places(finding: Finding) -> Hashable:
    return (finding.code, finding.span, PLACE.sub("#", finding.message), finding.branch)


def _said(report: TargetReport, site: SiteReport) -> Hashable:
    """Return all that is told of a site but for its place in the model and the rounding of numbers."""
    own = site.id
    return (
        dataclasses.replace(site, id="", module="", repeated=1),
        tuple(_without_places(f) for f in report.findings if f.site == own),
        tuple((u.code, PLACE.sub("#", u.why)) for u in report.undecided if u.site == own),
        tuple((c.verdict, c.departs_at) for c in report.crosscheck if c.site == own),
    )
