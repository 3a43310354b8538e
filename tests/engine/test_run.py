"""Many targets: none reaches the next, none hides another, and the process stays as it was."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from mha_lint.engine import check, inspect, joined
from mha_lint.engine import dispatch as target_stage
from mha_lint.engine import one as one_target
from mha_lint.model.finding import Finding, Severity
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.source import Span
from mha_lint.report.json_format import to_json
from tests.engine.conftest import line_of, spec_of
from tests.facts.conftest import HEADER, PLAIN, edited

if TYPE_CHECKING:
    from tests.engine.conftest import Check

WRONG = edited(PLAIN, ("softmax(dim=-1)", "softmax(dim=-2)"))
RAISES = edited(PLAIN, ("self.h = num_heads", "raise RuntimeError('no')"))


def test_others_are_reported_beside_one_that_fails(checked: Check, folder: Path) -> None:
    (folder / "latin.py").write_bytes(b"# \xe9\n")
    report = checked(
        "missing.py", "broken.py", "latin.py", "raises.py", "wrong.py", "good.py",
        files={"broken.py": "def f(:\n", "raises.py": RAISES, "wrong.py": WRONG, "good.py": PLAIN},
    )  # fmt: skip
    assert [(t.target, t.status.value, [f.code for f in t.findings]) for t in report.targets] == [
        ("missing.py", "failed", []),
        ("broken.py", "failed", []),
        ("latin.py", "failed", []),
        ("raises.py::MHA", "failed", []),
        ("wrong.py::MHA", "checked", ["MHA204"]),
        ("good.py::MHA", "checked", []),
    ]
    assert report.crashes == ()
    assert report.exit_code(Severity.WARNING) == 2
    for target in report.targets[:3]:
        assert target.reason is not None and target.path in target.reason


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (PLAIN, Severity.NOTE, 0),
        (WRONG, Severity.ERROR, 1),
        (RAISES, Severity.ERROR, 2),
    ],
)
def test_exit_codes(text: str, fail_on: Severity, code: int, checked: Check) -> None:
    assert checked("a.py", files={"a.py": text}).exit_code(fail_on) == code


def test_a_folder(checked: Check) -> None:
    report = checked(".", files={"b.py": WRONG, "a.py": PLAIN, "c.py": "x = 1\n"})
    assert [t.target for t in report.targets] == ["./a.py::MHA", "./b.py::MHA"] or [
        t.target for t in report.targets
    ] == ["a.py::MHA", "b.py::MHA"]
    assert [len(t.findings) for t in report.targets] == [0, 1]


def test_progress(folder: Path) -> None:
    (folder / "a.py").write_text(HEADER + PLAIN)
    seen: list[tuple[int, int, str]] = []
    specs = [spec_of("a.py", folder), NotChecked("gone", target="b.py")]
    check(specs, Settings(cwd=str(folder)), lambda *now: seen.append(now))
    assert seen == [(0, 2, "a.py::MHA"), (1, 2, "b.py"), (2, 2, "")]


def test_inspect_judges_nothing(folder: Path) -> None:
    (folder / "a.py").write_text(HEADER + WRONG)
    report = inspect([spec_of("a.py", folder)], Settings(cwd=str(folder)))
    (target,) = report.targets
    assert (target.status, target.findings) == (Status.CHECKED, ())
    assert target.sites[0].softmax_axis == "queries"
    assert target.sites[0].cost is not None


def test_a_failure_of_ours_is_a_crash_and_hides_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.py").write_text(HEADER + PLAIN)
    (folder / "b.py").write_text(HEADER + WRONG)
    judge = target_stage.judge_target

    def broken(spec: Any, *rest: Any) -> Any:
        if spec.path == "a.py":
            raise KeyError("ours")
        return judge(spec, *rest)

    monkeypatch.setattr(one_target, "judge_target", broken)
    report = check([spec_of(f, folder) for f in ("a.py", "b.py")], Settings(cwd=str(folder)))
    one, two = report.targets
    assert one.status is Status.FAILED
    assert one.reason == "mha-lint itself failed on this target: KeyError: 'ours'"
    assert [f.code for f in two.findings] == ["MHA204"]
    (crash,) = report.crashes
    assert (crash.where, crash.target, crash.error) == ("engine", "a.py::MHA", "KeyError: 'ours'")
    assert "KeyError" in crash.traceback
    assert report.exit_code(Severity.ERROR, exit_zero=True) == 2


def test_the_working_directory_is_the_one_of_the_settings(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.py").write_text(HEADER + PLAIN)
    spec = spec_of("a.py", folder)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    (target,) = check([spec], Settings(cwd=str(folder))).targets
    assert (target.status, target.path) == (Status.CHECKED, "a.py")


# --- determinism ---------------------------------------------------------------------------------


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def as_text(report: RunReport) -> str:
    return json.dumps(without_seconds(to_json(report, costs=True)))


def test_two_runs_are_equal_to_the_byte(checked: Check) -> None:
    files = {
        "a.py": WRONG,
        "b.py": edited(PLAIN, ("scores / math.sqrt(self.d_k)", "scores / math.sqrt(C)")),
        "c.py": RAISES,
    }
    first = as_text(checked(".", files=files))
    torch.manual_seed(4321)
    torch.set_num_threads(2)
    torch.randn(100)
    second = as_text(checked(".", files=files))
    assert first == second
    assert '"code": "MHA202"' in first and '"code": "MHA204"' in first


# --- global state --------------------------------------------------------------------------------

HOSTILE = """\
import os
import random
import sys
import warnings

import numpy as np

torch.manual_seed(99)
random.seed(99)
np.random.seed(99)
os.environ["MHA_LINT_TEST"] = "left behind"
os.environ.pop("MHA_LINT_GIVEN", None)
sys.path.insert(0, "/left/behind")
warnings.simplefilter("ignore")


"""


def state() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),
        "dtype": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "path": list(sys.path),
        "argv": list(sys.argv),
        "cwd": str(Path.cwd()),
        "filters": list(warnings.filters),
        "environment": dict(os.environ),
        "streams": (sys.stdout, sys.stderr, sys.stdin),
        "hook": sys.excepthook,
        "recursion": sys.getrecursionlimit(),
        "live": threading.active_count(),
    }


@pytest.mark.parametrize("place", ["import", "build", "call"])
def test_the_process_is_as_before(
    place: str, checked: Check, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MHA_LINT_GIVEN", "kept")
    deeds = (
        "torch.manual_seed(99); random.seed(99); np.random.seed(99)\n"
        "{0}torch.set_default_dtype(torch.float64); torch.set_default_dtype(torch.float32)\n"
        "{0}os.environ['MHA_LINT_TEST'] = 'left'; os.environ.pop('MHA_LINT_GIVEN', None)\n"
        "{0}sys.path.insert(0, '/left/behind'); sys.argv.append('left')\n"
        "{0}warnings.simplefilter('ignore'); os.chdir('/'); torch.set_grad_enabled(False)\n"
        "{0}torch.set_num_threads(3); sys.setrecursionlimit(4321)\n"
        "{0}torch.use_deterministic_algorithms(True)"
    )
    text = {
        "import": HOSTILE + PLAIN,
        "build": HOSTILE
        + edited(
            PLAIN, ("self.h = num_heads", deeds.format(" " * 8) + "\n        self.h = num_heads")
        ),
        "call": HOSTILE
        + edited(
            PLAIN, ("B, T, C = x.shape", deeds.format(" " * 8) + "\n        B, T, C = x.shape")
        ),
    }[place]
    before = state()
    report = checked("a.py", files={"a.py": text})
    after = state()
    assert report.targets[0].status is Status.CHECKED, report.targets[0].reason
    assert {k: v for k, v in after.items() if v != before[k]} == {}


def test_a_default_dtype_that_forward_sets_does_not_last(checked: Check) -> None:
    text = edited(
        PLAIN,
        ("B, T, C = x.shape", "torch.set_default_dtype(torch.float64)\n        B, T, C = x.shape"),
    )
    checked("a.py", files={"a.py": text})
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("deed", ["torch.softmax = None", "sys.modules['math'] = None"])
def test_the_next_target_sees_nothing_of_the_last(
    deed: str, checked: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "softmax", torch.softmax)
    monkeypatch.setitem(sys.modules, "math", math)
    report = checked(
        "a.py", "b.py", files={"a.py": f"import sys\n\n{deed}\n\n\n{PLAIN}", "b.py": PLAIN}
    )
    assert report.targets[1].status is Status.CHECKED, report.targets[1].reason
    assert callable(torch.softmax)
    assert sys.modules["math"] is math


def test_modules_of_one_target_are_not_those_of_the_next(checked: Check, folder: Path) -> None:
    for name, dim in (("one", "-1"), ("two", "-2")):
        (folder / name).mkdir()
        (folder / name / "parts.py").write_text(f"DIM = {dim}\n")
        text = HEADER.replace("import math", "import math\nfrom parts import DIM")
        body = PLAIN.replace("dim=-1", "dim=DIM")
        (folder / name / "attention.py").write_text(text + body)
    report = checked("one/attention.py", "two/attention.py")
    assert [[f.code for f in t.findings] for t in report.targets] == [[], ["MHA204"]]
    assert "parts" not in sys.modules


# --- findings are reported once ------------------------------------------------------------------

ENCLOSED = (
    WRONG
    + """

class Block(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = MHA(d_model, num_heads)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return x + self.attention(self.norm(x))
"""
)


def test_a_finding_is_reported_with_the_class_it_lies_in(checked: Check) -> None:
    report = checked("a.py", files={"a.py": ENCLOSED})
    assert [(t.class_name, [f.code for f in t.findings]) for t in report.targets] == [
        ("MHA", ["MHA204"]),
        ("Block", []),
    ]
    assert [f.code for f in report.targets[1].elsewhere] == ["MHA204"]
    assert report.targets[0].elsewhere == ()
    assert report.findings()[0].span.line == line_of(ENCLOSED, "softmax(dim=-2)")


def test_a_finding_of_the_enclosing_class_alone_stays(checked: Check) -> None:
    report = checked("a.py::Block", files={"a.py": ENCLOSED})
    assert [(f.code, f.span.line) for f in report.findings()] == [
        ("MHA204", line_of(ENCLOSED, "softmax(dim=-2)"))
    ]


def target(name: str, line: int, *findings: Finding) -> TargetReport:
    return TargetReport(f"a.py::{name}", "a.py", name, line, Status.CHECKED, findings=findings)


def test_the_nearest_class_above_keeps_it() -> None:
    one = Finding("MHA204", "r", Severity.ERROR, "m", Span("a.py", 30, 5))
    two = Finding("MHA204", "r", Severity.ERROR, "m", Span("a.py", 12, 5))
    elsewhere = Finding("MHA204", "r", Severity.ERROR, "m", Span("b.py", 12, 5))
    targets = [
        target("Outer", 40, one, two, elsewhere),
        target("Inner", 25, one),
        target("First", 10, one, two),
    ]
    outer, inner, first = joined.without_repeats(targets)
    assert outer.findings == (elsewhere,)
    assert inner.findings == (one,)
    assert first.findings == (two,)


def test_other_codes_on_one_line_all_stay() -> None:
    at = Span("a.py", 30, 5)
    found = [Finding(c, "r", Severity.ERROR, "m", at) for c in ("MHA201", "MHA204")]
    (one,) = joined.without_repeats([target("A", 1, *found)])
    assert one.findings == tuple(found)


def test_comments_that_suppress_nothing_are_noted(checked: Check) -> None:
    text = edited(WRONG, ("softmax(dim=-2)", "softmax(dim=-2)  # mha-lint: ignore[MHA999]"))
    report = checked("a.py", files={"a.py": text})
    line = line_of(text, "softmax(dim=-2)")
    assert report.notes == (f"a.py:{line}: MHA999 is no rule's code, nothing is suppressed by it",)
    assert [f.suppressed for f in report.findings()] == [False]
