"""A model too large for its weights: recorded on shapes, each distinct part measured by itself.

The parts are cut out of the recording with small random weights in the place of the model's own, so
that heads, scale, softmax, masks and rotations are judged at their real sizes. What takes a call of
the model (other lengths, branches, training mode, caches) is open then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from mha_lint.capture import CaptureError, Recording, record
from mha_lint.engine.apart import told_once
from mha_lint.engine.layers import Layers, in_order
from mha_lint.engine.target import Judged, failed, judge_bench, no_attention
from mha_lint.facts.bench import Bench
from mha_lint.facts.output import output_path
from mha_lint.facts.reach import Reach
from mha_lint.model.finding import Crash, Undecided
from mha_lint.model.report import NotChecked, PipelineStep, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.sites.cut import NARROW, cut
from mha_lint.sites.parts import Part, enlarged, parts_of
from mha_lint.targets.live.snapshot import place_of
from mha_lint.targets.live.subject import numbers_of
from mha_lint.targets.make import MadeOnce
from mha_lint.targets.sizes import sizes_of, stated_of
from mha_lint.targets.subject import Recipe, Subject

MOST_LEVELS = 2
"""Modules around an attention in which W_O is looked for."""
UNCALLABLE = "the weights were never made: only single calls of its modules were measured"


def judge_large(
    subject: Subject,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    mode: contextlib.AbstractContextManager[object],
    *,
    only_sizes: bool = False,
) -> Judged:
    """Judge the attention of a model whose large weights have no values, and are called in `mode`.

    With `only_sizes`, what is the same at all sizes is left to a small copy of the model.
    """
    recording = _recorded(subject, mode)
    if isinstance(recording, NotChecked):
        return Judged(failed(recording, spec, settings, subject), [])
    works = _Parts(subject, recording, spec, settings, rules, only_sizes)
    return works.together(
        [_placed(works.judged(one), one.part.path, one.part.alike) for one in works.held()]
    )


def judge_few(
    subject: Subject,
    layers: Layers,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    mode: contextlib.AbstractContextManager[object],
    *,
    only_sizes: bool,
) -> Judged | None:
    """Judge as `judge_large` a model of which `subject` has some layers of each kind.

    None: it does not tell of all layers.
    """
    recording = _recorded(subject, mode)
    if isinstance(recording, NotChecked):
        return None
    works = _Parts(subject, recording, spec, settings, rules, only_sizes)
    entries: list[tuple[Part, set[str], Judged]] = []
    for one in works.held():
        paths = layers.alike(one.part.alike)
        if paths is None:
            return None
        entries.append((one.part, paths, works.judged(one)))
    placed: list[Judged] = []
    taken: set[str] = set()
    for index, (part, paths, found) in enumerate(entries):
        shared: set[str] = set()
        for _, others, other in entries[index + 1 :]:
            if paths & others and _told(found.report) != _told(other.report):
                return None  # which layer is of which kind is not clear
            shared |= others
        own = in_order(paths - taken)
        if shared & set(own):
            own = own[: len(part.alike)]
        if not own:
            return None
        taken |= set(own)
        placed.append(_placed(found, part.path, own))
    return works.together(placed) if placed else None


def _told(report: TargetReport) -> tuple[object, ...]:
    """Return what a report tells but for where it is."""
    sites = [dataclasses.replace(s, id="", module="", repeated=1) for s in report.sites]
    return sites, [(f.code, f.span, f.message) for f in report.findings]


def _recorded(
    subject: Subject, mode: contextlib.AbstractContextManager[object]
) -> Recording | NotChecked:
    try:
        with subject.environment(), mode:
            return record(
                subject.module,
                subject.args,
                subject.kwargs,
                argument_names=subject.argument_names,
                copy=False,
                compare=False,
            )
    except CaptureError as error:
        detail = "".join(traceback.format_exception(error))
        reason = f"the call needs values that a model without weights does not have: {error}"
        return NotChecked(reason, "", detail)


@dataclass(frozen=True, slots=True)
class _Held:
    """A part that holds attention, by itself and with what its W_O needs around it."""

    part: Part
    small: Recording
    bench: Bench


@dataclass(frozen=True, slots=True)
class _Parts:
    whole: Subject
    recording: Recording
    spec: TargetSpec
    settings: Settings
    rules: list[LoadedRule]
    only_sizes: bool
    failures: list[Part] = field(default_factory=list)

    def held(self) -> Iterator[_Held]:
        """Yield each distinct part that holds attention."""
        for part in parts_of(self.recording):
            small = cut(self.recording, part)
            if small is None:
                self.failures.append(part)
                continue
            bench = Bench.of(small)
            if bench.sites:
                yield _Held(part, small, bench)

    def judged(self, held: _Held) -> Judged:
        """Return what is found in a part."""
        part, bench = held.part, held.bench
        inner = _subject_of(part, self.whole, held.small)
        outer = held.small if self.only_sizes else self._with_projection(part, bench)
        if outer is not held.small:
            bench = Bench.of(outer)
        reach = Reach(uncallable=UNCALLABLE, only_sizes=self.only_sizes)
        found = judge_bench(inner, bench, self.spec, self.settings, self.rules, reach)
        report = _at_full_size(found.report, outer, _width(self.recording, part))
        return Judged(report, found.crashes)

    def together(self, judged: list[Judged]) -> Judged:
        """Return one report of the model."""
        subject, spec, settings = self.whole, self.spec, self.settings
        crashes: list[Crash] = [c for j in judged for c in j.crashes]
        reports = [j.report for j in judged if j.report.sites]
        named = ", ".join(sorted({f"{p.class_name} ({p.path})" for p in self.failures}))
        lost = f"not measured, since it could not be run apart from the rest of the model: {named}"
        if self.failures and not reports:
            return Judged(failed(NotChecked(lost), spec, settings, subject), [])
        if not reports:
            return Judged(no_attention(subject, spec, settings), crashes)
        notes = (f"measured on parts with {NARROW} channels of the model each", *subject.notes)
        report = dataclasses.replace(joined(reports), notes=notes, line=subject.span.line)
        if self.failures:
            undecided = (*report.undecided, Undecided("MHA001", None, lost))
            report = dataclasses.replace(report, status=Status.UNDECIDED, undecided=undecided)
        return Judged(report, crashes)

    def _with_projection(self, part: Part, bench: Bench) -> Recording:
        """Return the part, or what holds it where W_O stands there: the heads may be mixed outside."""
        own = bench.recording
        if all(output_path(bench, site).map is not None for site in bench.sites):
            return own
        wider = part
        for _ in range(MOST_LEVELS):
            if not wider.path:
                break
            wider = enlarged(self.recording, wider)
            outer = cut(self.recording, wider)
            if outer is None:
                continue
            around = Bench.of(outer)
            same = [s.kind for s in around.sites] == [s.kind for s in bench.sites]
            if same and all(output_path(around, site).map is not None for site in around.sites):
                return outer
        return own


def _subject_of(part: Part, whole: Subject, small: Recording) -> Subject:
    """Return the module of `part` as a subject of its own."""
    module = whole.module
    if part.path and isinstance(module, nn.Module):
        module = module.get_submodule(part.path)
    span, name = place_of(module)
    named = numbers_of(module)
    return Subject(
        spec=whole.spec,
        name=name,
        span=span,
        module=module,
        args=small.inputs,
        kwargs={},
        argument_names=small.input_names,
        recipe=Recipe(name, "", "live"),
        namespace={},
        sizes=sizes_of(named),
        stated=stated_of(named),
        maker=MadeOnce(UNCALLABLE),
    )


def _at_full_size(report: TargetReport, small: Recording, width: int | None) -> TargetReport:
    """Return `report` with the widths that the model has."""
    sites = tuple(
        dataclasses.replace(
            site,
            d_model=site.d_model if site.d_model in small.widths.values() else width,
            pipeline=tuple(_widened(step, small.widths) for step in site.pipeline),
            cost=None,
        )
        for site in report.sites
    )
    return dataclasses.replace(report, sites=sites)


def _placed(judged: Judged, path: str, paths: tuple[str, ...]) -> Judged:
    """Return what is told of the part at `path` for all that the model has at `paths`."""
    sites = tuple(
        dataclasses.replace(
            site,
            module=paths[0] + site.module.removeprefix(path)
            if site.module.startswith(path)
            else site.module,
            repeated=len(paths),
        )
        for site in judged.report.sites
    )
    return Judged(dataclasses.replace(judged.report, sites=sites), judged.crashes)


def _width(recording: Recording, part: Part) -> int | None:
    """Return the width of what flows into `part` first."""
    held = set(part.nodes)
    for node in part.nodes:
        for read in node.all_input_nodes:
            value = recording.values.get(read)
            if read in held or read.op == "get_attr" or not isinstance(value, torch.Tensor):
                continue
            if value.dim() > 2:
                return int(value.shape[-1])
    return None


def _widened(step: PipelineStep, widths: Mapping[int, int]) -> PipelineStep:
    """Return `step` as it is in the model: what it reads and what W_O gives have the full width."""
    if step.text.startswith(("x ", "W_O ")):
        for narrow, width in widths.items():
            ending = f", {narrow})"
            if step.text.endswith(ending):
                return dataclasses.replace(step, text=f"{step.text.removesuffix(ending)}, {width})")
    return step


def joined(reports: list[TargetReport]) -> TargetReport:
    """Return one report of several parts of a model, with sites that are named apart."""
    reports = told_once(reports)
    renamed = [_renamed(report, place, len(reports)) for place, report in enumerate(reports)]
    undecided = tuple(u for r in renamed for u in r.undecided)
    return dataclasses.replace(
        renamed[0],
        status=Status.UNDECIDED if undecided else Status.CHECKED,
        sites=tuple(s for r in renamed for s in r.sites),
        findings=tuple(f for r in renamed for f in r.findings),
        undecided=undecided,
        contract=tuple(dict.fromkeys(c for r in renamed for c in r.contract)),
        crosscheck=tuple(c for r in renamed for c in r.crosscheck),
    )


def _renamed(report: TargetReport, place: int, count: int) -> TargetReport:
    """Number the sites of the parts through: each begins at 0."""
    if count == 1:
        return report

    def new(site: str) -> str:
        owner, _, number = site.rpartition(".")
        return f"{owner}.{place}.{number}"

    return dataclasses.replace(
        report,
        sites=tuple(dataclasses.replace(s, id=new(s.id)) for s in report.sites),
        findings=tuple(
            dataclasses.replace(f, site=new(f.site) if f.site else None) for f in report.findings
        ),
        undecided=tuple(
            dataclasses.replace(u, site=new(u.site) if u.site else None) for u in report.undecided
        ),
        crosscheck=tuple(dataclasses.replace(c, site=new(c.site)) for c in report.crosscheck),
    )
