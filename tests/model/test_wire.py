"""Reports as plain values: what is written is read again, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from mha_lint.model import wire
from mha_lint.model.finding import Finding, Severity
from mha_lint.model.report import CrossCheck, SiteReport, Status, TargetReport
from mha_lint.model.source import Span
from mha_lint.model.wire import WireError, dump, load, to_plain

FINDING = Finding(
    "MHA201", "missing-scale", Severity.WARNING, "No \ud800 scale.", Span("a.py", 3, 5)
)
REPORT = TargetReport(
    "a.py::A", "a.py", "A", 1, Status.CHECKED, seconds=0.25,
    sites=(SiteReport("A.0", "", 4, "self", d_model=8, scale_value=0.5),),
    findings=(FINDING,),
    crosscheck=(CrossCheck("A.0", "match", max_abs_error=1e-16),),
    notes=("called",),
)  # fmt: skip


def changed(**values: Any) -> bytes:
    return json.dumps({**to_plain(REPORT), **values}).encode()


def test_what_is_written_is_read_again() -> None:
    assert load(TargetReport, dump(REPORT)) == REPORT
    assert load(str, dump("text")) == "text"


def test_a_document_is_one_line_of_ascii() -> None:
    document = dump(REPORT)
    assert document.isascii()
    assert b"\n" not in document


def test_a_whole_number_is_a_float_where_one_is_wanted_and_not_the_reverse() -> None:
    found = load(TargetReport, changed(seconds=2)).seconds
    assert (found, type(found)) == (2.0, float)
    with pytest.raises(WireError, match=r"TargetReport\.line: float not expected"):
        load(TargetReport, changed(line=2.0))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"path": 3}, "TargetReport.path: str expected, not int"),
        ({"seconds": "1"}, "TargetReport.seconds: float expected, not str"),
        ({"seconds": True}, "TargetReport.seconds: float expected, not bool"),
        ({"status": "fine"}, "TargetReport.status: no Status"),
        ({"status": []}, "TargetReport.status: no Status"),
        ({"sites": {}}, "TargetReport.sites: list expected, not dict"),
        ({"sites": [3]}, "TargetReport.sites: object expected, not int"),
        ({"notes": [["x"]]}, "TargetReport.notes: str expected, not list"),
        ({"more": 1}, "TargetReport: 'more' is unknown"),
        ({"line": 1 << 63}, "TargetReport.line: int not expected"),
    ],
)
def test_what_is_not_of_the_form_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(WireError) as caught:
        load(TargetReport, changed(**values))
    assert str(caught.value) == why


def test_what_is_missing_is_named() -> None:
    plain = to_plain(REPORT)
    del plain["path"]
    with pytest.raises(WireError) as caught:
        load(TargetReport, json.dumps(plain).encode())
    assert str(caught.value) == "TargetReport: 'path' is missing"


@pytest.mark.parametrize(
    "document", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b"{} {}", b'"\\u12"']
)
def test_what_is_no_json_is_refused(document: bytes) -> None:
    with pytest.raises(WireError, match="no JSON"):
        load(TargetReport, document)


def test_what_is_nested_too_deeply_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Leaf:
        value: int

    kind: Any = Leaf
    plain: Any = {"value": 1}
    for _ in range(wire.DEEPEST + 1):
        kind, plain = tuple[kind, ...], [plain]
    with pytest.raises(WireError, match="nested too deeply"):
        wire._read(kind, plain, "it", 0)


def test_an_object_of_another_kind_is_none() -> None:
    with pytest.raises(WireError):
        load(Span, dump(REPORT))
    with pytest.raises(WireError, match="object expected, not list"):
        load(TargetReport, b"[]")
