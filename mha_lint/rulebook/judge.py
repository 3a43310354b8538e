"""Run rules over the facts of one subject.

A rule that asks for an unknown fact is undecided at that site, one that asks for a fact that makes
no sense there passes, and one that raises anything else is a crash of ours: never a clean site.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from mha_lint.model.facts import NotApplicableError, SiteFacts, SubjectFacts, UnknownFactError
from mha_lint.model.finding import Crash, Finding, Undecided, Violation
from mha_lint.model.lines import line_of
from mha_lint.model.settings import Settings
from mha_lint.model.source import Span
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.rulebook.select import ignored_in, severity_of
from mha_lint.rulebook.suppress import suppressed

Confirm: TypeAlias = Callable[[str | None, Violation], str | None]
"""From a site id (None: the subject) and a violation to the proof of it, if there is one."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules make of one subject; findings are sorted by place and free of repeats."""

    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    crashes: tuple[Crash, ...] = ()


def in_words(site: str | None, violation: Violation) -> str | None:
    """Return the proof that a violation already carries in words, else None."""
    kind, _, words = (violation.confirm or "").partition(": ")
    return words if kind in ("identity", "witness") and words else None


def judge(
    rules: Iterable[LoadedRule],
    facts: SubjectFacts,
    *,
    settings: Settings,
    target: str = "",
    confirm: Confirm = in_words,
) -> Judgement:
    """Run every one of `rules` at every site of `facts`, or once on the whole subject.

    `target` is how the user named the subject, for crashes; `confirm` is asked for the proof of
    each violation. Findings of files with per-file ignores are left out; suppressed ones stay.
    """
    findings: list[Finding] = []
    undecided: list[Undecided] = []
    crashes: list[Crash] = []
    for loaded in rules:
        for site, check in _checks(loaded, facts):
            where = site.info.id if site is not None else None
            try:
                for violation in check():
                    fallback = place(facts, site)
                    findings.append(
                        finding(loaded, violation, fallback, where, settings, confirm=confirm)
                    )
            except UnknownFactError as unknown:
                undecided.append(Undecided(loaded.code, where, str(unknown)))
            except NotApplicableError:
                continue
            except Exception as error:  # one rule's bug must neither hide the others nor pass
                crashes.append(_crash(loaded, where, target or facts.name, error))
    return Judgement(kept(findings, settings), tuple(undecided), tuple(crashes))


def finding(
    loaded: LoadedRule,
    violation: Violation,
    fallback: Span,
    site: str | None,
    settings: Settings,
    *,
    confirm: Confirm = in_words,
) -> Finding:
    """Return `violation` as a finding of `loaded`, at `fallback` if it names no place itself."""
    span = _relative(violation.at or fallback, settings.cwd)
    default = violation.severity or loaded.rule.severity
    absolute = os.path.join(settings.cwd, span.path)  # noqa: PTH118 - joins strings, no file access
    linecache.checkcache(absolute)
    return Finding(
        code=loaded.code,
        rule=loaded.name,
        severity=severity_of(loaded.code, default, settings),
        message=violation.message,
        span=span,
        site=site,
        branch=violation.branch,
        here=violation.here,
        why=violation.why,
        help=violation.help,
        evidence=violation.evidence,
        labels=tuple(replace(x, span=_relative(x.span, settings.cwd)) for x in violation.labels),
        confirmed_by=confirm(site, violation),
        fingerprint=_fingerprint(loaded.code, span, absolute, site),
        suppressed=suppressed(loaded.code, span, absolute),
    )


def kept(findings: Iterable[Finding], settings: Settings) -> tuple[Finding, ...]:
    """Return `findings` sorted, without repeats and without those of per-file ignores.

    Sites that share their lines (layers built in a loop) say the same thing of the same place.
    """
    seen: dict[tuple[object, ...], Finding] = {}
    for one in sorted(findings, key=lambda f: (f.span, f.code, f.site or "", f.message)):
        path = os.path.join(settings.cwd, one.span.path)  # noqa: PTH118 - joins strings
        if not ignored_in(path, one.code, settings.per_file_ignores):
            seen.setdefault((one.code, one.span, one.message, one.branch), one)
    return tuple(seen.values())


def place(facts: SubjectFacts, site: SiteFacts | None = None) -> Span:
    """Return where to point when a violation does not say: the site, else the subject."""
    at = site.info.at() if site is not None else None
    return at or facts.span or Span(facts.name, 1)


def relative_path(path: str, cwd: str) -> str:
    """Return `path` relative to `cwd` if it lies below it, else as it is."""
    prefix = cwd.rstrip(os.sep) + os.sep
    return path.removeprefix(prefix)


def _relative(span: Span, cwd: str) -> Span:
    return replace(span, path=relative_path(span.path, cwd))


def _checks(
    loaded: LoadedRule, facts: SubjectFacts
) -> Iterator[tuple[SiteFacts | None, Callable[[], Iterator[Violation]]]]:
    """Yield every run of a rule, not yet begun, with the site that it is about."""
    rule = loaded.rule
    if rule.subject is not None:
        yield None, partial(rule.subject, facts)
    if rule.site is not None:
        for site in facts.sites:
            yield site, partial(rule.site, site)


def _crash(loaded: LoadedRule, site: str | None, target: str, error: Exception) -> Crash:
    where = f"rule {loaded.code}" + (f" at {site}" if site else "")
    text = "".join(traceback.format_exception(error))
    return Crash(where, target, f"{type(error).__name__}: {error}", text)


def _fingerprint(code: str, span: Span, absolute: str, site: str | None) -> str:
    """Return an identity that survives edits elsewhere in the file: it holds no line number."""
    text = line_of(absolute, span.line).strip()
    parts = (code, span.path, site or "", text)
    return hashlib.sha1(
        "\0".join(parts).encode("utf-8", "replace"), usedforsecurity=False
    ).hexdigest()
