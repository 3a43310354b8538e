"""Judge the other branches of a subject: what is wrong with a flag flipped names that flag."""

from __future__ import annotations

import dataclasses
import re

from mha_lint.engine.crosscheck import cross_check
from mha_lint.engine.naming import named_by_user
from mha_lint.engine.prove import prover
from mha_lint.facts.reach import BRANCH
from mha_lint.facts.subject import Measurement, measure
from mha_lint.model.finding import Crash, Finding
from mha_lint.model.settings import Settings
from mha_lint.rulebook.judge import judge
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.sites.finder import DATA_ERRORS

JUDGED: tuple[tuple[str, str], ...] = (
    ("MHA104", r"lay|dim|first|transpos|order"),
    ("MHA105", r"lay|dim|first|transpos|order"),
    ("MHA106", r"shar|tie|tied|same"),
    ("MHA203", r"scal"),
    ("MHA204", r"softmax|norm|axis|dim"),
    ("MHA206", r"softmax|norm"),
    ("MHA301", r"mask|caus|sparse"),
    ("MHA303", r"mask|caus"),
    ("MHA304", r"mask|caus"),
    ("MHA305", r"mask|caus"),
    ("MHA307", r"mask|caus|cross"),
    ("MHA313", r"cap"),
    ("MHA401", r"train|drop|determin"),
    ("MHA402", r"train|drop"),
    ("MHA501", r"rope|rot|pos|interleav|neox"),
    ("MHA502", r"rope|rot|pos"),
)
"""Rules that are run on branches, and what the flag must not be called: a flag that is there to
change the very thing is an option, and no fault."""


def branch_findings(
    measured: Measurement,
    known: tuple[Finding, ...],
    rules: list[LoadedRule],
    settings: Settings,
    target: str,
) -> tuple[list[Finding], list[Crash]]:
    """Return what is wrong on other branches only, and what broke on our side.

    `known`: the findings of the call itself; what they say already is not said again.
    """
    found: list[Finding] = []
    crashes: list[Crash] = []
    said = {(f.code, f.span) for f in known}
    for branch in measured.branches:
        if branch.value is None:
            continue  # without a mask that was given: compared with the call, and no more
        told = {f.code for f in known if f.branch == branch.label}
        chosen = [
            rule
            for rule in rules
            for code, about in JUDGED
            if rule.code == code and code not in told and not re.search(about, branch.flag.lower())
        ]
        if not chosen:
            continue
        try:
            other = measure(branch.subject, branch.bench, BRANCH)
        except DATA_ERRORS:
            continue  # the call with its own flags is judged; this one cannot be measured
        facts = named_by_user(other.facts, branch.subject)
        judged = judge(chosen, facts, settings=settings, target=target)
        new = [f for f in judged.findings if (f.code, f.span) not in said]
        if new and settings.crosscheck:
            checked = cross_check(other, settings, branch.subject)
            proven = judge(
                chosen, facts, settings=settings, target=target, confirm=prover(checked, facts)
            )
            new = [f for f in proven.findings if (f.code, f.span) not in said]
        crashes += judged.crashes
        said |= {(f.code, f.span) for f in new}
        found += [dataclasses.replace(f, branch=f.branch or branch.label) for f in new]
    return found, crashes
