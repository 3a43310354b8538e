"""W_O may stand in the class that holds the attention: BertSelfOutput projects BertSelfAttention's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mha_lint.capture import CaptureError, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.output import output_path
from mha_lint.model.facts import Known, OutputProjection, SiteFacts, SubjectFacts, Unknown
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.scan import scan_file
from mha_lint.targets.subject import Subject

MOST_BESIDE = 200
"""Files of the folder that are searched for the class's name."""


def judged_by_enclosing(facts: SubjectFacts, subject: Subject, settings: Settings) -> SubjectFacts:
    """Ask what holds this module, where no output projection was found in it.

    The calls that it was seen to be made in, else the classes of the same file that construct it.
    """
    open_ones = [s for s in facts.sites if _lacks(s)]
    if not open_ones:
        return facts
    answer, ran = _projected(subject.enclosing(), subject)
    if not ran:
        specs = _constructors(subject)
        answer, ran = _projected(_opened(specs, settings), subject)
        if specs and not ran:
            answer = Unknown(
                f"{specs[0].qualname} constructs it, but could not be run to see whether it projects"
            )
    if answer is None:
        return facts
    sites = tuple(
        dataclasses.replace(s, output_projection=answer) if _lacks(s) else s for s in facts.sites
    )
    return dataclasses.replace(facts, sites=sites)


def _lacks(site: SiteFacts) -> bool:
    fact = site.output_projection
    return isinstance(fact, Known) and not fact.value.present and not fact.value.declared


def _constructors(subject: Subject) -> list[TargetSpec]:
    """Return the classes that construct the subject's class, the outermost last.

    Those of its own file; if there are none, those of the first file beside it that imports the class
    from there, or from their package, and has some.
    """
    own, name = subject.span.path, subject.name.split(".")[-1]
    found = _constructing(own, name)
    if found or not own.endswith(".py"):
        return found
    homes = "|".join(re.escape(one) for one in (Path(own).stem, Path(own).absolute().parent.name))
    imported = re.compile(
        rf"^\s*from\s+(?:\.+|[\w.]*?\b(?:{homes}))\s+import\s+[^()]*?(?:\([^)]*?)?\b{re.escape(name)}\b",
        re.MULTILINE,
    )
    for path in sorted(Path(own).parent.glob("*.py"))[:MOST_BESIDE]:
        if str(path) == own or not imported.search(_text(path)):
            continue
        found = _constructing(str(path), name)
        if found:
            return found
    return []


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _constructing(path: str, name: str) -> list[TargetSpec]:
    """Return the classes of a file that construct the class `name`, or one that does."""
    try:
        candidates = scan_file(path)
    except Exception:  # no file that could be read, as what a program made up
        return []
    names, grown = (
        {name, *(c.qualname for c in candidates if c.reason == f"constructs {name}")},
        True,
    )
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


def _opened(specs: list[TargetSpec], settings: Settings) -> Iterator[Subject]:
    for spec in specs:
        opened = open_subject(spec, timeout=settings.timeout)
        if isinstance(opened, Subject):
            yield opened


def _projected(
    outer: Iterable[Subject], subject: Subject
) -> tuple[Known[OutputProjection] | Unknown | None, bool]:
    """Return W_O as one of `outer` has it behind the subject's class, and whether one of them ran."""
    ran = False
    name = subject.name.split(".")[-1]
    for opened in outer:
        try:
            with opened.environment():
                recording = record(
                    opened.module, opened.args, opened.kwargs, argument_names=opened.argument_names
                )
        except CaptureError:
            continue
        bench = Bench.of(recording)
        for site in bench.sites:
            if name not in _owners(bench, site.context.meta.get("module", "")):
                continue
            ran = True
            path = output_path(bench, site)
            if path.map is not None:
                value = OutputProjection(
                    True,
                    name=path.map.parameters[0] if path.map.parameters else "",
                    mixes=True,
                    enclosing=opened.name,
                    width=path.map.out_width,
                )
                return Known(value, f"{opened.name} applies it to what {name} returns"), True
    return None, ran


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
