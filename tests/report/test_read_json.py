"""Reports read back: what was written is all there, and nothing else is taken for a report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from mha_lint.model.report import RunReport, SiteReport, TargetReport
from mha_lint.model.settings import UsageError
from mha_lint.model.source import Span
from mha_lint.report import inspect, json_format
from mha_lint.report.read_json import read_report
from mha_lint.report.view import View


def written(report: RunReport, view: View) -> bytes:
    return json_format.render(report, view).encode()


@pytest.fixture
def shard(sample: RunReport) -> RunReport:
    """The sample as the second of three parts, interrupted, with a cell and a repeated finding."""
    faulty, *rest = sample.targets
    (finding, hidden) = faulty.findings
    there = replace(finding, span=Span("book.ipynb", 3, 4, 3, 9, cell=5))
    book = TargetReport(
        "book.ipynb::A", "book.ipynb", "A", 2, faulty.status, findings=(there,),
        sites=(SiteReport("A.0", "", 3, "self", cell=5),), elsewhere=(there, finding, hidden), cell=5,
    )  # fmt: skip
    return replace(sample, targets=(faulty, *rest, book), interrupted=True, shard=(2, 3))


def test_what_is_read_is_what_was_written(shard: RunReport, view: View) -> None:
    text = written(shard, view)
    read = read_report(text, "a.json")
    assert written(read, view) == text
    assert (read.shard, read.interrupted) == ((2, 3), True)
    assert [t.status for t in read.targets] == [t.status for t in shard.targets]
    assert read.exit_code(shard.findings()[0].severity) == 130


def test_shards_and_repeats_follow_the_schema(shard: RunReport, view: View) -> None:
    document = json.loads(written(shard, view))
    jsonschema.validate(document, json.loads(json_format.SCHEMA.read_text(encoding="utf-8")))
    assert (document["shard"], document["interrupted"]) == ({"index": 2, "count": 3}, True)
    assert document["targets"][-1]["elsewhere"] == [
        {"code": "MHA204", "path": "attention.py", "line": 24},
        {"code": "MHA204", "path": "book.ipynb", "line": 3, "cell": 5},
    ]


def test_a_whole_run_says_nothing_of_parts(sample: RunReport, view: View) -> None:
    document = json.loads(written(sample, view))
    assert document.keys().isdisjoint({"shard", "interrupted"})
    assert read_report(written(sample, view), "a.json").shard is None


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d: d.update(version=2),
            "is of format version 2, and this mha-lint reads version 1",
        ),
        (lambda d: d.update(version=True), "is of format version True"),
        (lambda d: d.pop("version"), "is of format version None"),
        (lambda d: d["tool"].update(name="ruff"), "is no report of mha-lint"),
        (lambda d: d.pop("tool"), "is no report of mha-lint"),
        (lambda d: d.pop("crashes"), "is not a whole report ('crashes' is missing)"),
        (lambda d: d["tool"].pop("torch"), "is not a whole report ('torch' is missing)"),
        (lambda d: d["targets"][0].pop("status"), "is not a whole report ('status' is missing)"),
        (lambda d: d["targets"][0].update(status="fine"), "no Status"),
        (lambda d: d["targets"][0].update(line="7"), "is not a whole report"),
        (lambda d: d["targets"][0].update(sites=None), "is not a whole report"),
        (lambda d: d["targets"][0]["findings"][0].update(suppressed=0), "bool expected, not int"),
        (lambda d: d["targets"].pop(), "was cut or edited"),
        (lambda d: d["targets"][0]["findings"].pop(0), "was cut or edited"),
        (lambda d: d["targets"][0]["findings"][0].update(suppressed=True), "was cut or edited"),
        (lambda d: d["targets"][0].update(more=1), "was cut or edited"),
        (lambda d: d.update(interrupted=False), "was cut or edited"),
        (lambda d: d.update(shard={"index": 1}), "is not a whole report ('count' is missing)"),
        (lambda d: d.update(shard=[1, 2]), "is not a whole report"),
    ],
)
def test_what_is_no_whole_report_is_refused(
    change: Change, said: str, sample: RunReport, view: View
) -> None:
    document = json.loads(written(sample, view))
    change(document)
    with pytest.raises(UsageError, match=rf"^a\.json: .*{re.escape(said)}") as caught:
        read_report(json.dumps(document).encode(), "a.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"a.py:1:1: MHA201 no scale", "is no JSON"),
        (b'{"version": NaN}', "is no JSON"),
        (b"\xff\xfe\xfd", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[]", "is no report of mha-lint"),
        (b'{"version": 1}', "is no report of mha-lint"),
        (b'{"version": 1, "tool": "mha-lint"}', "is no report of mha-lint"),
    ],
)
def test_what_is_no_report_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=rf"^a\.json: {said}"):
        read_report(text, "a.json")


def test_every_shorter_file_is_refused(shard: RunReport, view: View) -> None:
    text = written(shard, view).rstrip()
    for end in range(0, len(text), 97):
        with pytest.raises(UsageError):
            read_report(text[:end], "a.json")


def test_what_inspect_wrote_was_not_judged(sample: RunReport, view: View) -> None:
    text = inspect.render_json(sample, view).encode()
    with pytest.raises(UsageError, match=r"is of mha-lint inspect, which judges nothing"):
        read_report(text, "a.json")
