"""One target through the stages: open, record, find, measure, judge, cross-check."""

from __future__ import annotations

import dataclasses
import traceback
from dataclasses import dataclass

import torch

from mha_lint.capture import CaptureError, record
from mha_lint.engine.branches import branch_findings
from mha_lint.engine.contract import without_expected
from mha_lint.engine.crosscheck import CheckedSite, cross_check, with_half_losses
from mha_lint.engine.enclosing import judged_by_enclosing
from mha_lint.engine.naming import named_by_user
from mha_lint.engine.prove import prover
from mha_lint.engine.sites import site_reports
from mha_lint.engine.stacks import once, shorter
from mha_lint.engine.unchecked import not_checked
from mha_lint.facts.bench import Bench
from mha_lint.facts.reach import WHOLE, Reach
from mha_lint.facts.subject import Measurement, measure
from mha_lint.model.facts import Known, SiteFacts, SubjectFacts
from mha_lint.model.finding import Crash, Finding, Severity, Undecided
from mha_lint.model.report import NotChecked, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.judge import Judgement, judge, kept, relative_path
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.targets.subject import Subject


@dataclass(slots=True)
class Judged:
    """The report on one target and what broke on our side."""

    report: TargetReport
    crashes: list[Crash]


def judge_subject(
    subject: Subject,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    reach: Reach = WHOLE,
) -> Judged:
    """Take a built subject through the stages behind `open_subject`, as far as `reach` says."""
    try:
        with subject.environment():
            recording = record(
                subject.module, subject.args, subject.kwargs, argument_names=subject.argument_names
            )
    except CaptureError as error:
        detail = "".join(traceback.format_exception(error))
        hint = "" if subject.real or subject.made_up else "pass another call with --call"
        return Judged(failed(NotChecked(str(error), hint, detail), spec, settings, subject), [])
    short = shorter(subject, recording)
    if short is not None:
        judged = judge_found(short.subject, short.bench, spec, settings, rules, reach)
        report = once(judged.report)
        notes = (*report.notes, *short.notes)
        return Judged(dataclasses.replace(report, notes=notes), judged.crashes)
    return judge_found(subject, Bench.of(recording), spec, settings, rules, reach)


def judge_found(
    subject: Subject,
    bench: Bench,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    reach: Reach = WHOLE,
) -> Judged:
    """Take a subject whose sites were looked for further, if there are any to measure."""
    recording = bench.recording
    if not bench.sites:
        return Judged(no_attention(subject, spec, settings), [])
    dense = torch.strided
    odd = next((v for n in recording.outputs if (v := bench.replay.base(n)).layout != dense), None)
    if odd is not None:
        kind = str(odd.layout).removeprefix("torch.")
        why = f"the call returns a tensor of layout {kind}, and mha-lint measures dense ones"
        return Judged(failed(NotChecked(why), spec, settings, subject), [])
    if not recording.faithful.ok:
        why = (
            f"the recording does not reproduce the module on other inputs: {recording.faithful.why}"
        )
        hint = "values are baked in: .item(), numpy or a custom kernel stands on the path"
        return Judged(failed(NotChecked(why, hint), spec, settings, subject), [])
    return judge_bench(subject, bench, spec, settings, rules, reach)


def judge_bench(
    subject: Subject,
    bench: Bench,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    reach: Reach = WHOLE,
) -> Judged:
    """Take a subject whose sites are found through the stages behind that."""
    measured = measure(subject, bench, reach)
    checked = cross_check(measured, settings, subject) if settings.crosscheck else []
    facts = with_half_losses(measured.facts, checked)
    if not reach.only_sizes:
        facts = judged_by_enclosing(facts, subject, settings)
    facts = named_by_user(facts, subject)
    prove = prover(checked, facts)
    judgement = judge(rules, facts, settings=settings, target=spec.text, confirm=prove)
    explained = {f.site for f in judgement.findings if f.severity is Severity.ERROR}
    quiet = all(f.severity is Severity.NOTE for f in judgement.findings)
    unclear = [c for c in checked if c.report.site not in explained]
    mismatches = _with_mismatches(facts, unclear, quiet=quiet)
    if mismatches.crosscheck != facts.crosscheck:
        judgement = judge(rules, mismatches, settings=settings, target=spec.text, confirm=prove)
    judgement = _without_guesses(judgement, subject, facts)
    others, broken = branch_findings(measured, judgement.findings, rules, settings, spec.text)
    judgement = dataclasses.replace(
        judgement,
        findings=kept((*judgement.findings, *others), settings),
        crashes=(*judgement.crashes, *broken),
    )
    findings = without_expected(judgement.findings, facts.contract.entries)
    return Judged(
        _report(
            subject,
            spec,
            settings,
            dataclasses.replace(measured, facts=facts),
            checked,
            judgement,
            findings,
        ),
        list(judgement.crashes),
    )


AXES = ("MHA601", "MHA602")
"""Rules that depend on which axis of the input is which."""
CHANNELS = ("MHA107",)
"""Rules that compare the channels of a projection that the operands use."""


def _without_guesses(judgement: Judgement, subject: Subject, facts: SubjectFacts) -> Judgement:
    """Leave open what rests on a guessed call that may have run by chance.

    The axes of an input with an axis of one: the code may take inputs of one axis less; then heads
    stand where positions were guessed. Whose channels are shared, where a view took positions into
    the heads: their width does not divide that of the projection.
    """
    if subject.how not in ("built", "inferred"):
        return judgement
    tensors = [t for t in (*subject.args, *subject.kwargs.values()) if isinstance(t, torch.Tensor)]
    unsure = any(t.is_floating_point() and t.dim() > 2 and 1 in t.shape[:-1] for t in tensors)
    mixed = {site.info.id for site in facts.sites if _holds_positions(site)}
    open_ones = {
        f: f"the call {subject.call} was guessed, and {why}: pass --call"
        for f in judgement.findings
        for codes, applies, why in (
            (AXES, unsure, "its axis of one may not be there"),
            (CHANNELS, f.site in mixed, "by its lengths a head holds parts of several positions"),
        )
        if applies and f.code in codes
    }
    return dataclasses.replace(
        judgement,
        findings=tuple(f for f in judgement.findings if f not in open_ones),
        undecided=(
            *judgement.undecided,
            *(Undecided(f.code, f.site, why) for f, why in open_ones.items()),
        ),
    )


def _holds_positions(site: SiteFacts) -> bool:
    """Return whether the width of a head does not divide that of the projection of q."""
    match site.dims, site.roles:
        case Known(value=dims), Known(value=roles):
            return any(p.out_width % dims.head_dim for p in roles.q)
    return False


def _with_mismatches(
    facts: SubjectFacts, checked: list[CheckedSite], *, quiet: bool
) -> SubjectFacts:
    """Tell the facts which sites are found wrong without an explanation.

    `quiet`: no rule has anything to say, so that sums other than one are no one's consequence.
    """
    by_id = {site.info.id: site for site in facts.sites}
    told = {c.report.site: _mystery(c, by_id[c.report.site], quiet=quiet) for c in checked}
    sentences = tuple(f"{site}: {sentence}" for site, sentence in told.items() if sentence)
    if not sentences:
        return facts
    return dataclasses.replace(
        facts, crosscheck=Known(sentences, "compared stage by stage in float64")
    )


def _mystery(checked: CheckedSite, site: SiteFacts, *, quiet: bool) -> str | None:
    """Return what is wrong at a site, where it is known that something is, and not what."""
    if checked.verdict.unexplained and _plain(site):
        at = checked.report.departs_at
        return f"the {at} depart from the reference, and no known variant explains it"
    found = site.normaliser
    if not quiet or not isinstance(found, Known) or not found.value.uneven:
        return None
    if found.value.row_sums is not None:
        least, most = found.value.row_sums
        return f"the weights of one query sum to {least:.3g} ... {most:.3g}, not to 1"
    return None


EXACT, EPSILON = 1e-12, 1e-2
"""Between these the weights of a query fall short of 1 by an epsilon in the denominator."""


def _plain(site: SiteFacts) -> bool:
    """Return whether the site is measured to be plain attention, so that a mismatch is no design.

    A factor that depends on the position, a learned temperature or a normaliser of its own kind is
    a design that the reference does not know.
    """
    scale, normaliser = site.scale, site.normaliser
    return (
        isinstance(scale, Known)
        and not scale.value.learned
        and isinstance(normaliser, Known)
        and normaliser.value.function == "softmax"
        and normaliser.value.plain
        and not _adds_to_sum(site)
    )


def _adds_to_sum(site: SiteFacts) -> bool:
    """Return whether something small, or one, stands beside the sum in the softmax: that is told."""
    stability = site.stability
    if not isinstance(stability, Known):
        return False
    return stability.value.added is not None or EXACT < stability.value.short < EPSILON


def _report(
    subject: Subject,
    spec: TargetSpec,
    settings: Settings,
    measured: Measurement,
    checked: list[CheckedSite],
    judgement: Judgement,
    findings: tuple[Finding, ...],
) -> TargetReport:
    status = Status.UNDECIDED if judgement.undecided else Status.CHECKED
    sites = site_reports(measured, findings, checked)
    return TargetReport(
        target=spec.text,
        path=relative_path(subject.span.path, settings.cwd),
        class_name=subject.name,
        line=subject.span.line,
        status=status,
        sites=sites,
        findings=findings,
        undecided=judgement.undecided,
        contract=measured.facts.contract.entries,
        crosscheck=tuple(c.report for c in checked),
        notes=(*_how(subject), *subject.notes),
    )


def _how(subject: Subject) -> tuple[str, ...]:
    if subject.how == "stated":
        return ()
    if subject.how == "live":
        return (f"called with {subject.call}",)
    called = f"called with {subject.call}"
    if subject.how == "inferred":
        if subject.spec.build is not None or subject.build == subject.name:
            return (f"{called} (inferred)",)
        plain = subject.build.endswith("()")
        built = f"built as {subject.build}{', with its defaults' if plain else ''}"
        if subject.spec.call is not None:
            return (built if plain else f"{built} (inferred)",)
        if plain:
            return (f"{built}; {called} (inferred)",)
        return (f"built as {subject.build}, {called} (inferred)",)
    if subject.how == "built":
        return (f"built as {subject.build}, as in the file itself; {called} (inferred)",)
    return (f"built as {subject.build}, {called} (as the file itself uses it)",)


def no_attention(subject: Subject, spec: TargetSpec, settings: Settings) -> TargetReport:
    """Return the report of a target that runs and holds no attention."""
    status = Status.FAILED if spec.stated else Status.NO_ATTENTION
    return TargetReport(
        target=spec.text,
        path=relative_path(subject.span.path, settings.cwd),
        class_name=subject.name,
        line=subject.span.line,
        status=status,
        reason="no attention was found in the recorded call",
        hint="name another class, or pass a call that reaches the attention with --call",
        notes=(*_how(subject), *subject.notes),
    )


_RAISED = {
    "MHA102": "indivisible-width",
    "MHA103": "mismatched-head-dims",
    "MHA305": "mask-overflow",
}
"""Rules whose fault makes the call fail."""


def failed(
    failure: NotChecked, spec: TargetSpec, settings: Settings, subject: Subject | None = None
) -> TargetReport:
    """Return the report of a target that failed, with the finding where its error is one."""
    report = not_checked(failure, spec)
    path = relative_path(report.path, settings.cwd)
    findings: tuple[Finding, ...] = ()
    problem = failure.problem
    if problem is not None:
        span = dataclasses.replace(
            problem.span, path=relative_path(problem.span.path, settings.cwd)
        )
        name = _RAISED[problem.code]
        findings = (
            Finding(
                code=problem.code, rule=name, severity=Severity.ERROR, message=problem.message,
                span=span, help=problem.help, evidence=problem.evidence,
                confirmed_by="the call raises this error",
            ),
        )  # fmt: skip
    if subject is not None:
        report = dataclasses.replace(report, line=subject.span.line, notes=_how(subject))
    return dataclasses.replace(report, path=path, findings=findings)
