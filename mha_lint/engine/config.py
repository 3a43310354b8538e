"""A model config: judged on a small copy that runs, and on its real sizes without weights.

The copy tells all that takes a call of the model; the whole tells what depends on the sizes: heads,
widths, the scale, and how often each kind of attention stands in the model.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from mha_lint.capture import Recording
from mha_lint.engine.large import judge_few, judge_large
from mha_lint.engine.layers import Layers
from mha_lint.engine.modules import judge_modules, recorded
from mha_lint.engine.target import Judged, failed, judge_subject
from mha_lint.facts.reach import UNFLIPPED
from mha_lint.model.finding import Finding, Severity, Undecided
from mha_lint.model.report import CrossCheck, NotChecked, SiteReport, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.targets.large import WithoutLarge
from mha_lint.targets.pretrained import CannotShrinkError, ShrunkConfig, read_config, shrunk
from mha_lint.targets.pretrained.fewer import with_fewer_layers
from mha_lint.targets.pretrained.larger import with_larger_pictures
from mha_lint.targets.pretrained.subject import ConfigMaker, whole
from mha_lint.targets.subject import Subject

SIZED = ("MHA202", "MHA203")
"""Rules whose verdict may be another one at the sizes of the whole model."""
PUBLISHED = {
    "MHA201": ", unless the published weights, which were not read, hold it",
    "MHA202": "; weights that were published for this code were trained with it",
}
"""What is added to findings on the scale of a model whose weights are made elsewhere: warnings."""
LONGEST = 800
"""Operations of one call above which a model is judged by its modules."""
LARGEST = 1 << 24
"""Numbers that one call computes, or that its parameters hold, above which it is judged so too."""
JUDGED = (Status.CHECKED, Status.UNDECIDED)


def judge_config(
    located: TargetSpec, spec: TargetSpec, settings: Settings, rules: list[LoadedRule]
) -> Judged:
    """Judge the model that the config file at `located` describes."""
    assert located.path is not None
    config = read_config(located.path)
    if isinstance(config, NotChecked):
        return Judged(failed(config, spec, settings), [])
    small: ShrunkConfig | None = None
    try:
        small = shrunk(config)
    except CannotShrinkError as error:
        reason = f"no smaller model of this config could be built and called: {error}"
        copy = Judged(failed(NotChecked(reason, "", _detail(error)), spec, settings), [])
    else:
        copy = judge_copy(ConfigMaker(spec, config, small).first(), spec, settings, rules)
    full = _judge_whole(config, small, spec, settings, rules, copy.report.status in JUDGED)
    return _published(_together(copy, full))


def _judge_whole(
    config: Any,
    small: ShrunkConfig | None,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    only_sizes: bool,
) -> Judged:
    """Judge the model at its own size, called as the small one, else with inputs of its own size."""
    mode = WithoutLarge()
    results: list[Judged] = []
    for called in (small, None) if small is not None else (None,):
        try:
            subject = whole(spec, config, called, mode)
        except Exception as error:  # whatever the library raises where there are no values
            reason = f"the model could not be made without weights: {type(error).__name__}: {error}"
            detail = _detail(error)
            results.append(Judged(failed(NotChecked(reason, "", detail), spec, settings), []))
            continue
        few = _few(subject, config, called, mode)
        found = few and judge_few(*few, spec, settings, rules, mode, only_sizes=only_sizes)
        judged = found or judge_large(subject, spec, settings, rules, mode, only_sizes=only_sizes)
        if judged.report.status in JUDGED:
            return judged
        results.append(judged)
    return results[0]


def _few(
    subject: Subject, config: Any, small: ShrunkConfig | None, mode: WithoutLarge
) -> tuple[Subject, Layers] | None:
    """Return the model at its own size with some layers of each kind, and how these are repeated."""
    try:
        fewer = with_fewer_layers(config)
        few = None if fewer is None else whole(subject.spec, fewer, small, mode)
    except Exception:  # whatever the library raises: the layers depend on one another
        return None
    if few is None or not isinstance(few.module, nn.Module):
        return None
    assert isinstance(subject.module, nn.Module)
    return few, Layers(subject.module, few.module)


def judge_copy(
    subject: Subject, spec: TargetSpec, settings: Settings, rules: list[LoadedRule]
) -> Judged:
    """Judge a small model as a whole; by its modules where it is too long, or cannot be recorded."""
    return _published(_judge_copy(subject, spec, settings, rules))


def _published(judged: Judged) -> Judged:
    """Return what is told of a model whose weights are published ones."""
    findings = tuple(map(_of_published, judged.report.findings))
    return Judged(dataclasses.replace(judged.report, findings=findings), judged.crashes)


def _of_published(finding: Finding) -> Finding:
    addition = PUBLISHED.get(finding.code)
    if addition is None or finding.severity is not Severity.ERROR:
        return finding
    message = f"{finding.message}{addition}"
    return dataclasses.replace(finding, severity=Severity.WARNING, message=message)


def _judge_copy(
    subject: Subject, spec: TargetSpec, settings: Settings, rules: list[LoadedRule]
) -> Judged:
    recording = recorded(subject)
    if recording is not None and _is_much(recording):
        by_modules = judge_modules(subject, spec, settings, rules, recording)
        if by_modules is not None:
            report = by_modules.report
            notes = (*report.notes, "too much to be judged as a whole: its modules were")
            return Judged(dataclasses.replace(report, notes=notes), by_modules.crashes)
    whole = judge_subject(subject, spec, settings, rules, UNFLIPPED)
    if whole.report.status in JUDGED or recording is None:
        return whole
    by_modules = judge_modules(subject, spec, settings, rules, recording)
    if by_modules is None or by_modules.report.status in JUDGED:
        return by_modules or whole
    # Each may have had one position to attend to: nothing can be told of that.
    for larger in with_larger_pictures(subject):
        found = judge_modules(larger, spec, settings, rules, recorded(larger))
        if found is not None and found.report.status in JUDGED:
            return found
    return whole


def _is_much(recording: Recording) -> bool:
    """Return whether the many runs of one recorded call would take too long, or too much memory."""
    if len(recording.graph.nodes) > LONGEST:
        return True
    held = {True: 0, False: 0}
    for node, value in recording.values.items():
        if isinstance(value, torch.Tensor):
            held["parameter" in node.meta] += value.numel()
    return max(held.values()) > LARGEST


def _detail(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _together(copy: Judged, full: Judged) -> Judged:
    """Return one report: what the copy tells, with the sizes and the scale of the whole."""
    one, two = copy.report, full.report
    crashes = [*copy.crashes, *full.crashes]
    if one.status not in JUDGED and two.status not in JUDGED:
        return Judged(one, crashes)
    if one.status not in JUDGED:
        notes = (*two.notes, f"judged without calling it: {one.reason}")
        return Judged(dataclasses.replace(two, notes=notes), crashes)
    one = folded(one)
    if two.status not in JUDGED:
        notes = (*one.notes, f"judged on a small copy only: {two.reason}")
        return Judged(dataclasses.replace(one, notes=notes), crashes)
    return Judged(_sized(one, two), crashes)


def folded(report: TargetReport) -> TargetReport:
    """Return `report` with layers that are alike told once, with their number."""
    kept: dict[tuple[object, ...], SiteReport] = {}
    names: dict[str, str] = {}
    for site in report.sites:
        key = (*_key(site), *_sizes(site), site.kind, site.mask)
        first = kept.get(key)
        if first is None:
            kept[key] = site
        else:
            kept[key] = dataclasses.replace(first, repeated=first.repeated + site.repeated)
        names[site.id] = kept[key].id
    ids = {site.id for site in kept.values()}
    return dataclasses.replace(
        report,
        sites=tuple(kept.values()),
        findings=tuple(_moved(f, names) for f in report.findings),
        undecided=tuple(dict.fromkeys(_moved(u, names) for u in report.undecided)),
        crosscheck=tuple(c for c in report.crosscheck if c.site in ids),
    )


_Placed = TypeVar("_Placed", Finding, Undecided)


def _moved(one: _Placed, names: Mapping[str, str]) -> _Placed:
    return dataclasses.replace(one, site=names.get(one.site, one.site) if one.site else None)


def _key(site: SiteReport) -> tuple[object, ...]:
    """Return what the sites of layers that are alike have in common, in the copy and in the whole."""
    return (site.line, re.sub(r"\d+", "#", site.module))


def _sizes(site: SiteReport) -> tuple[object, ...]:
    return (site.num_heads, site.num_kv_heads, site.head_dim, site.v_dim)


def _sized(one: TargetReport, two: TargetReport) -> TargetReport:
    """Give each site of the copy the sizes that it has in the whole model.

    What depends on these is told as the whole has it, where both tell it.
    """
    wholes: dict[tuple[object, ...], list[SiteReport]] = {}
    for site in folded(two).sites:
        wholes.setdefault(_key(site), []).append(site)
    checks = {check.site: check for check in two.crosscheck}
    sites: list[SiteReport] = []
    crosscheck: list[CrossCheck] = []
    names: dict[str, str] = {}
    small: list[str] = []
    for site in one.sites:
        own = [c for c in one.crosscheck if c.site == site.id]
        for place, found in enumerate(wholes.pop(_key(site), [])):
            name = site.id if place == 0 else f"{site.id}.{place}"
            names[found.id] = name
            checked = [checks[found.id]] if found.id in checks else own
            crosscheck += [dataclasses.replace(c, site=name) for c in checked]
            told_there = found.scale_value is not None
            sites.append(
                dataclasses.replace(
                    found,
                    id=name,
                    kind=site.kind,
                    mask=site.mask,
                    output_projection=site.output_projection,
                    scale_value=found.scale_value if told_there else site.scale_value,
                    scale_named=found.scale_named if told_there else site.scale_named,
                )
            )
        if site.id not in names.values():
            small.append(site.id)
            sites.append(site)
            crosscheck += own
    sized = tuple(_moved(f, names) for f in two.findings if f.code in SIZED)
    told = {(f.code, f.span) for f in sized}
    notes = one.notes
    if small:
        notes += (f"the sizes are those of the small copy: {', '.join(small)}",)
    return dataclasses.replace(
        one,
        notes=notes,
        sites=tuple(sites),
        findings=(*sized, *(f for f in one.findings if (f.code, f.span) not in told)),
        crosscheck=tuple(crosscheck),
    )
