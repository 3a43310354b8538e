"""What the text format must not do: repeat itself, hide failures, drown a reader."""

from __future__ import annotations

from dataclasses import replace

from mha_lint.model.finding import Finding, Undecided
from mha_lint.model.report import CrossCheck, RunReport, SiteReport, Status, TargetReport
from mha_lint.report import concise, text
from mha_lint.report.summary import summary
from mha_lint.report.view import View


def checked(name: str, *findings: Finding, sites: int = 1) -> TargetReport:
    rows = tuple(SiteReport(f"{name}.{i}", "", 1, "self") for i in range(sites))
    return TargetReport(
        f"a.py::{name}", "a.py", name, 1, Status.CHECKED, sites=rows, findings=findings
    )


def test_a_fault_that_two_targets_meet_is_told_once(finding: Finding, view: View) -> None:
    report = RunReport(
        "0", None, (checked("A", finding), checked("Block", replace(finding, site="B.0")))
    )
    shown = text.render(report, view)
    assert shown.count("error[MHA204]") == 1
    assert "  and the finding shown under a.py::A\n" in shown
    assert shown.endswith("1 error in 2 modules (2 attention sites), 0.0 s\n")
    assert concise.render(report, view).count("MHA204") == 1


def test_a_finding_that_is_told_elsewhere_is_pointed_at(finding: Finding, view: View) -> None:
    block = replace(checked("Block"), elsewhere=(finding, replace(finding, site="B.1")))
    other = replace(block, path="b.py", target="b.py::Block")
    path, line = finding.span.path, finding.span.line
    report = RunReport("0", None, (replace(block, path=path), other))
    assert text.render(report, view).splitlines()[:3] == [
        f"a.py::Block   self-attention   see MHA204 at line {line}",
        "",
        f"b.py::Block   self-attention   see MHA204 at {path}:{line}:{finding.span.column}",
    ]
    hidden = replace(block, elsewhere=(replace(finding, suppressed=True),))
    assert text.render(RunReport("0", None, (hidden,)), view).startswith(
        "a.py::Block   self-attention   ok\n"
    )


def test_an_error_that_a_finding_explains_is_not_told_again(finding: Finding, view: View) -> None:
    failed = TargetReport(
        "a.py::A", "a.py", "A", 7, Status.FAILED, "calling A() failed: sizes", "use others",
        findings=(replace(finding, code="MHA103"),),
    )  # fmt: skip
    shown = text.render(RunReport("0", None, (failed,)), view)
    assert "calling A() failed" not in shown and "use others" not in shown
    place = f"{finding.span.path}:{finding.span.line}:{finding.span.column}"
    assert f"it does not run, see MHA103 at {place} above;" in shown
    assert "1 error in 1 module (0 attention sites), 0.0 s\n1 target not checked\n" in shown
    short = concise.render(RunReport("0", None, (failed,)), view).splitlines()
    assert (
        short[1] == f"a.py:7:1: MHA001 a.py::A not checked: it does not run, see MHA103 at {place}"
    )


def test_numbers_are_not_told_twice(finding: Finding, view: View) -> None:
    twice = replace(
        finding, why="the sums are 0.24 ... 2.91", evidence=("they sum to 0.24 ... 2.91",)
    )
    assert "seen" not in text.render(RunReport("0", None, (checked("A", twice),)), view)
    more = replace(twice, evidence=("they sum to 0.24 ... 2.91 over 7 keys", "no map follows"))
    shown = text.render(RunReport("0", None, (checked("A", more),)), view)
    assert "seen   they sum to 0.24 ... 2.91 over 7 keys\n" in shown
    assert "no map follows" in shown


def test_a_missing_file_has_no_line(view: View) -> None:
    failed = TargetReport("b.py", "b.py", None, None, Status.FAILED, "no such file: b.py", "look")
    shown = concise.render(RunReport("0", None, (failed,)), view)
    assert shown.startswith("b.py: MHA001 not checked: no such file: b.py (look)\n")


def test_another_message_at_the_same_place_is_another_finding(finding: Finding, view: View) -> None:
    other = replace(finding, message="Something else.")
    shown = text.render(RunReport("0", None, (checked("A", finding, other),)), view)
    assert shown.count("error[MHA204]") == 2


def test_of_many_sites_those_without_findings_are_counted(finding: Finding, view: View) -> None:
    target = checked("A", replace(finding, site="A.3"), sites=9)
    shown = text.render(RunReport("0", None, (target,)), view)
    assert "  A.3 (line 1)   self-attention\n" in shown
    assert "A.4 " not in shown
    assert "  8 more without findings (-v shows them)\n" in shown
    assert "A.4 " in text.render(RunReport("0", None, (target,)), replace(view, verbose=True))


def test_a_clean_run_says_so(view: View) -> None:
    report = RunReport("0", None, (checked("A"),), seconds=1.26)
    assert text.render(report, view) == (
        "a.py::A   self-attention   ok\n\nno findings in 1 module (1 attention site), 1.3 s\n"
    )
    assert text.render(report, replace(view, quiet=True)) == ""


def test_quiet_still_tells_what_failed(view: View) -> None:
    failed = TargetReport("b.py", "b.py", None, None, Status.FAILED, "no such file: b.py")
    shown = text.render(RunReport("0", None, (failed,)), replace(view, quiet=True))
    assert "no such file: b.py" in shown


def test_repeated_layers_count_as_sites() -> None:
    target = replace(checked("A"), sites=(SiteReport("A.0", "", 1, "self", repeated=12),))
    assert "(12 attention sites)" in summary(RunReport("0", None, (target,)))


def test_terminal_codes_of_user_code_are_not_passed_on(view: View) -> None:
    failed = TargetReport("b.py", "b.py", None, None, Status.FAILED, "said \x1b]0;title\x07")
    assert "\x1b" not in text.render(RunReport("0", None, (failed,)), view)
    assert "\x1b" not in concise.render(RunReport("0", None, (failed,)), view)


HALF = CrossCheck("A.0", "match", None, "cpu", "bfloat16", 2e-3, 4e-3)
LOSSY = replace(
    HALF, verdict="mismatch", departs_at="context", max_abs_error=3e-1, explanation="it loses more"
)


def test_in_half_precision_difference_and_tolerance_are_told(view: View) -> None:
    target = replace(checked("A"), crosscheck=(HALF,))
    assert text.render(RunReport("0", None, (target,)), view).splitlines()[:3] == [
        "a.py::A   self-attention   ok",
        "  cross-check: equals the reference attention to within the rounding of bfloat16 (rms difference",
        "  2e-03, at most 4e-03 is rounding), bfloat16, cpu",
    ]


def test_a_loss_is_shown_though_no_rule_tells_of_it(view: View) -> None:
    target = replace(checked("A"), crosscheck=(LOSSY,))
    assert text.render(RunReport("0", None, (target,)), view).splitlines()[:3] == [
        "a.py::A   self-attention",
        "  cross-check: differs from the reference attention (rms difference 3e-01, at most 4e-03 is",
        "  rounding), first at the context, bfloat16, cpu; it loses more",
    ]


def test_a_design_that_the_reference_does_not_know_is_not_called_ok(view: View) -> None:
    other = CrossCheck("A.0", "mismatch", "weights", max_abs_error=6e-1, explanation="why")
    report = RunReport("0", None, (replace(checked("A"), crosscheck=(other,)),))
    assert text.render(report, view).splitlines()[:3] == [
        "a.py::A   self-attention",
        "  cross-check: differs from the reference attention by 6e-01, first at the weights, float64,"
        " cpu;",
        "  why",
    ]


def test_what_a_rule_could_not_judge_is_not_called_ok(view: View) -> None:
    target = replace(checked("A"), undecided=(Undecided("MHA505", "A.0", "heads are mixed"),))
    shown = text.render(RunReport("0", None, (target,)), view)
    assert shown.splitlines()[0] == "a.py::A   self-attention"
    assert "MHA505" in shown and "heads are mixed" in shown


def test_what_was_not_measured_is_told_to_who_asks(view: View) -> None:
    check = CrossCheck("A.0", "match", max_abs_error=2e-16, explanation="bfloat16 was not measured")
    report = RunReport("0", None, (replace(checked("A"), crosscheck=(check,)),))
    line = "cross-check: equals the reference attention (max difference 2e-16), float64, cpu"
    assert f"{line}\n" in text.render(report, view)
    shown = text.render(report, replace(view, verbose=True))
    assert f"{line}; bfloat16 was not\n  measured\n" in shown
