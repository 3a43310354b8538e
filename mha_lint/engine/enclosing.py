"""W_O may stand in the class that holds the attention: BertSelfOutput projects BertSelfAttention's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from mha_lint.capture import CaptureError, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.output import output_path
from mha_lint.model.facts import Known, OutputProjection, SiteFacts, SubjectFacts, Unknown
from mha_lint.model.report import NotChecked
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.scan import scan_file
from mha_lint.targets.subject import Subject


def judged_by_enclosing(facts: SubjectFacts, subject: Subject, settings: Settings) -> SubjectFacts:
    """Ask the classes of the same file that construct this one, where no output projection was found."""
    open_ones = [s for s in facts.sites if _lacks(s)]
    if not open_ones:
        return facts
    enclosing = _constructors(subject)
    if not enclosing:
        return facts
    answer = _answer(enclosing, subject, settings)
    sites = tuple(
        dataclasses.replace(s, output_projection=answer) if _lacks(s) and answer is not None else s
        for s in facts.sites
    )
    return dataclasses.replace(facts, sites=sites)


def _lacks(site: SiteFacts) -> bool:
    fact = site.output_projection
    return isinstance(fact, Known) and not fact.value.present and not fact.value.declared


def _constructors(subject: Subject) -> list[TargetSpec]:
    """Return the classes of the file that construct the subject's class, the outermost last."""
    path = subject.span.path
    try:
        candidates = scan_file(path)
    except Exception:  # the file was read before; if it changed meanwhile there is nothing to ask
        return []
    name = subject.name.split(".")[-1]
    names, grown = {name}, True
    while grown:
        grown = False
        for one in candidates:
            if one.qualname not in names and names & set(one.constructs):
                names.add(one.qualname)
                grown = True
    return [
        TargetSpec(
            text=f"{Path(path).name}::{c.qualname}", path=path, qualname=c.qualname, line=c.line
        )
        for c in candidates
        if c.qualname in names and c.qualname != name
    ]


def _answer(
    specs: list[TargetSpec], subject: Subject, settings: Settings
) -> Known[OutputProjection] | Unknown | None:
    """Return W_O as the enclosing class has it; Unknown when no enclosing class could be run."""
    ran = False
    for spec in specs:
        opened = open_subject(spec, timeout=settings.timeout)
        if isinstance(opened, NotChecked):
            continue
        try:
            with opened.environment():
                recording = record(
                    opened.module, opened.args, opened.kwargs, argument_names=opened.argument_names
                )
        except CaptureError:
            continue
        bench = Bench.of(recording)
        name = subject.name.split(".")[-1]
        inner = [s for s in bench.sites if name in _owners(bench, s.context.meta.get("module", ""))]
        for site in inner:
            ran = True
            path = output_path(bench, site)
            if path.map is not None:
                return Known(
                    OutputProjection(
                        True,
                        name=path.map.parameters[0] if path.map.parameters else "",
                        mixes=True,
                        enclosing=opened.name,
                        width=path.map.out_width,
                    ),
                    f"{opened.name} applies it to what {name} returns",
                )
    if ran:
        return None
    return Unknown(
        f"{specs[0].qualname} constructs it, but could not be run to see whether it projects"
    )


def _owners(bench: Bench, module_path: str) -> set[str]:
    """Return the class names of the module at `module_path` and of all that hold it."""
    root = bench.recording.module
    if root is None:
        return set()
    names = {type(root).__name__}
    current: Any = root
    for part in module_path.split("."):
        current = getattr(current, part, None) or getattr(current, "_modules", {}).get(part)
        if current is None:
            break
        names.add(type(current).__name__)
    return names
