"""What the text format must not do: repeat itself, hide failures, drown a reader."""

from __future__ import annotations

from dataclasses import replace

from mha_lint.model.finding import Finding
from mha_lint.model.report import RunReport, SiteReport, Status, TargetReport
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
