"""Parts of a run for several machines: each has whole files, and together they are the run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mha_lint.engine.joined import without_repeats
from mha_lint.model.finding import Finding
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.select import matches

NamedReport = tuple[str, RunReport]
"""A report and the name of the file that it was read from."""


def part_of(
    targets: Sequence[TargetSpec | NotChecked], index: int, count: int
) -> list[TargetSpec | NotChecked]:
    """Return the `index`-th (from 1) of `count` parts of `targets`, a stretch of their order.

    The targets of one file stay together, with what stands between them: what is said of a file
    needs all of them.
    """
    out: list[TargetSpec | NotChecked] = []
    before = 0
    for block in _blocks(targets):
        middle = before + len(block) / 2
        before += len(block)
        if min(int(middle * count / len(targets)), count - 1) == index - 1:
            out += block
    return out


def _blocks(
    targets: Sequence[TargetSpec | NotChecked],
) -> Iterator[Sequence[TargetSpec | NotChecked]]:
    """Yield the shortest stretches of `targets` of which no two have a file in common."""
    last = {_file(one): number for number, one in enumerate(targets)}
    start = end = 0
    for number, one in enumerate(targets):
        end = max(end, last[_file(one)])
        if number == end:
            yield targets[start : end + 1]
            start = end = number + 1


def _file(one: TargetSpec | NotChecked) -> str:
    if isinstance(one, NotChecked):
        return os.path.normpath(one.target.partition("::")[0])
    return one.text.partition(":")[0] if one.path is None else os.path.normpath(one.path)


def merged(parts: Sequence[NamedReport]) -> RunReport:
    """Return the report of the run of which `parts` are all the shards, or of several whole runs.

    Raises:
        UsageError: a shard is missing or there twice, or the parts do not belong together.
    """
    ordered = _in_order(parts)
    first = ordered[0]
    told = [report for _, report in ordered]
    for name, report in ordered:
        for what in ("version", "torch"):
            own, other = getattr(report, what), getattr(first[1], what)
            if own != other:
                tool = "mha-lint" if what == "version" else "torch"
                raise UsageError(
                    f"{name}: was made with {tool} {own}, and {first[0]} with {other}; "
                    "make all reports with the same"
                )
    before = _without_used_comments(ordered)
    targets = [
        dataclasses.replace(target, elsewhere=(*one.elsewhere, *target.elsewhere))
        for one, target in zip(before, without_repeats(before), strict=True)
    ]
    notes = []
    if any(report.interrupted for report in told):
        notes.append("a part of the run was interrupted")
    if all(t.status is Status.NO_ATTENTION for t in targets):
        notes.append("no attention was found")
    return RunReport(
        version=first[1].version,
        torch=first[1].torch,
        targets=tuple(targets),
        crashes=tuple(crash for report in told for crash in report.crashes),
        notes=tuple(notes),
        seconds=sum(report.seconds for report in told),
        interrupted=any(report.interrupted for report in told),
    )


def _in_order(parts: Sequence[NamedReport]) -> list[NamedReport]:
    """Return `parts` in the order of the run: all shards, each once, or no shard at all."""
    numbered = [(report.shard, name, report) for name, report in parts if report.shard is not None]
    if not numbered:
        return list(parts)
    whole = next((name for name, report in parts if report.shard is None), None)
    (_, count), first, _ = numbered[0]
    if whole is not None:
        raise UsageError(f"{whole}: is of a whole run, and {first} a shard; merge one or the other")
    held: dict[int, NamedReport] = {}
    for (index, of), name, report in numbered:
        if of != count:
            raise UsageError(f"{name}: is one of {of} shards, and {first} one of {count}")
        if not 1 <= index <= count:
            raise UsageError(f"{name}: says that it is shard {index} of {count}")
        if index in held:
            raise UsageError(f"{name}: is shard {index} of {count}, and so is {held[index][0]}")
        held[index] = name, report
    missing = (str(index) for index in range(1, count + 1) if index not in held)
    if which := ", ".join(islice(missing, 10)):
        more = ", ..." if next(missing, None) else ""
        noun = "shard" if count - len(held) == 1 else "shards"
        raise UsageError(f"{noun} {which}{more} of {count} missing; merge needs the reports of all")
    return [held[index] for index in range(1, count + 1)]


_UNUSED = re.compile(
    r"the comment suppresses (?P<codes>.+), of which nothing is found (?:on|in) (?P<where>.+)"
)
_LEFT = re.compile(r"keep ignore\[(.+)\] only")


def _without_used_comments(parts: Sequence[NamedReport]) -> list[TargetReport]:
    """Return all targets, without what was said of comments that hide a finding of another part.

    A class is judged again where another file builds it, and more may be found of it there.
    """
    hidden = [
        (number, finding)
        for number, (_, report) in enumerate(parts)
        for target in report.targets
        for finding in target.findings
        if finding.suppressed
    ]
    out: list[TargetReport] = []
    for number, (_, report) in enumerate(parts):
        elsewhere = [finding for other, finding in hidden if other != number]
        for target in report.targets:
            told = [
                _as_used(finding, elsewhere, report) if finding.code == "MHA002" else finding
                for finding in target.findings
            ]
            kept = tuple(finding for finding in told if finding is not None)
            out.append(dataclasses.replace(target, findings=kept))
    return out


def _as_used(unused: Finding, hidden: Sequence[Finding], report: RunReport) -> Finding | None:
    """Return what is left of a finding on an unused comment, seen what it does hide."""
    said = _UNUSED.fullmatch(unused.message)
    if said is None:
        return unused
    covered = [one for one in hidden if _covers(unused, said["where"], one, report)]
    codes = said["codes"].split(", ")
    used = [code for code in codes if any(matches(code, one.code) for one in covered)]
    rest = [code for code in codes if code not in used]
    if not used or not rest:
        return unused if rest else None
    left = _LEFT.fullmatch(unused.help)
    needed = sorted([*used, *(left[1].split(", ") if left else [])])
    before, after = ", ".join(codes), ", ".join(rest)
    proof = unused.confirmed_by
    return dataclasses.replace(
        unused,
        message=unused.message.replace(before, after, 1),
        help=f"keep ignore[{', '.join(needed)}] only",
        confirmed_by=None if proof is None else proof.replace(before, after, 1),
    )


def _covers(comment: Finding, where: str, finding: Finding, report: RunReport) -> bool:
    """Tell whether the comment, which covers `where`, covers the place of `finding`."""
    first, span = comment.span.line, finding.span
    if span.path != comment.span.path:
        return False
    if where == "this line":
        return first in (span.line, max(span.line, span.end_line))
    if where == "the file":
        return True
    here = [t for t in report.targets if t.path == span.path and t.line is not None]
    own = next((f"{t.class_name}." for t in here if t.line == first), "?")
    following = [
        t.line
        for t in here
        if t.line is not None and t.line > first and not f"{t.class_name}".startswith(own)
    ]
    return first <= max(span.line, span.end_line) and span.line < min(following, default=10**9)
