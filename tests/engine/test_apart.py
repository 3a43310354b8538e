"""Sites that stand in two reports are told in the first."""

from __future__ import annotations

from mha_lint.engine.apart import told_once
from mha_lint.model.finding import Undecided
from mha_lint.model.report import SiteReport, Status, TargetReport


def report(*sites: tuple[str, str, int]) -> TargetReport:
    return TargetReport(
        target="a",
        path="a.py",
        class_name="A",
        line=1,
        status=Status.UNDECIDED,
        sites=tuple(SiteReport(id=i, module=m, line=n, kind="self") for i, m, n in sites),
        undecided=tuple(Undecided("MHA001", i, "why") for i, _, _ in sites),
    )


def test_a_site_of_an_earlier_report_goes_with_what_is_said_of_it() -> None:
    outer = report(("A.0", "x", 5), ("B.0", "x.b", 9))
    inner = report(("B.0", "x.b", 9), ("B.1", "x.b", 12))
    one, two = told_once([outer, inner])
    assert one is outer
    assert [(s.id, s.line) for s in two.sites] == [("B.1", 12)]
    assert [u.site for u in two.undecided] == ["B.1"]


def test_a_report_without_a_site_of_its_own_is_left_out() -> None:
    outer = report(("A.0", "x", 5))
    assert told_once([outer, report(("A.0", "x", 5))]) == [outer]


def test_lines_tell_sites_of_one_module_apart() -> None:
    reports = [report(("A.0", "x", 5)), report(("A.0", "x", 6))]
    assert told_once(reports) == reports
