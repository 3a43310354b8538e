"""From opened sources to a report: each checkpoint against the configs, each config by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from mha_lint.dims.compare import Comparison, complete_latent
from mha_lint.dims.config import Section, sections
from mha_lint.dims.config_checks import Remark, check_section
from mha_lint.dims.data import Contradiction, DimsReport, Equation, Group, Status
from mha_lint.dims.sources import open_sources
from mha_lint.dims.two_checkpoints import compare_checkpoints


def diagnose(paths: Sequence[Path]) -> DimsReport:
    """Return what `paths` say of their attention heads, and what contradicts what.

    Raises:
        SourceError: one of `paths` cannot be read.
    """
    opened = open_sources(paths)
    report = DimsReport(opened.sources, notes=opened.notes)
    parts = [(label, sections(config)) for label, config in opened.configs]
    for checkpoint in opened.checkpoints:
        Comparison(checkpoint, [s for _, own in parts for s in own], report).run()
    for _, own in parts:
        _config(own, report, settled=bool(report.groups))
    _compare_configs(parts, report)
    for first, second in combinations(opened.checkpoints, 2):
        report.contradictions += compare_checkpoints(first, second)
    report.contradictions = _merged(report.contradictions)
    report.notes = list(dict.fromkeys(report.notes))
    return report


def _merged(found: list[Contradiction]) -> list[Contradiction]:
    """Say the same sentence once, with all the places it holds for."""
    places: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for c in found:
        where = places.setdefault((c.message, c.sources), [])
        if c.where not in where:
            where.append(c.where)
    return [Contradiction(m, sources, ", ".join(where)) for (m, sources), where in places.items()]


def _config(own: list[Section], report: DimsReport, *, settled: bool) -> None:
    used = {g.config for g in report.groups}
    for section in own:
        for found in check_section(section, settled=settled and section.name in used):
            if isinstance(found, Remark):
                report.notes.append(found.message)
            elif not _told(found, report):
                report.contradictions.append(found)
        outer = any(s.name == section.name.rpartition(".")[0] and not s.variant for s in own)
        if not settled and "h" in section.values and not (section.variant and outer):
            report.groups.append(_stated(section, report))


def _told(found: Contradiction, report: DimsReport) -> bool:
    """Tell whether the same sources were already set against the same checkpoint."""
    return any(set(found.sources) <= set(c.sources) for c in report.contradictions)


def _stated(section: Section, report: DimsReport) -> Group:
    """Return what a section says, where there is no checkpoint to compare it with."""
    facts = section.facts(section.latent)
    sizes = {
        f.relation.unknowns[0]: f.relation.value for f in facts if isinstance(f.relation, Equation)
    }
    bad = any(c.where.removeprefix("config").strip() == section.name for c in report.contradictions)
    if section.latent:
        complete_latent(sizes)
    else:
        heads = sizes["h"]
        width = sizes.get("d_model")
        if heads > 0 and "d_k" not in sizes and width is not None and width % heads == 0:
            sizes["d_k"] = width // heads
        sizes.setdefault("h_kv", heads)
        if "d_k" in sizes:
            sizes.setdefault("d_v", sizes["d_k"])
    label = f"config {section.name}" if section.name else "config"
    layout = "latent (MLA)" if section.latent else "as the config states"
    status: Status = "contradictory" if bad else "solved" if "d_k" in sizes else "open"
    return Group(label, 1, layout, status, sizes, config=section.name)


def _compare_configs(parts: list[tuple[str, list[Section]]], report: DimsReport) -> None:
    """Compare the outer sections of two configs, key by key."""
    if len(parts) != 2:
        return
    (first, own), (second, other) = parts
    for a in own:
        for b in other:
            if a.name != b.name or a.variant or b.variant:
                continue
            for unknown in sorted(a.values.keys() & b.values.keys()):
                x, y = a.values[unknown], b.values[unknown]
                if x != y:
                    message = (
                        f"{Path(first).name} says {a.keys[unknown]} = {x}, {Path(second).name} says "
                        f"{b.keys[unknown]} = {y}"
                    )
                    sources = (f"{first} {a.keys[unknown]}", f"{second} {b.keys[unknown]}")
                    report.contradictions.append(
                        Contradiction(message, sources, a.name or "config")
                    )
