"""``mha-lint check``: what the engine is asked, what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mha_lint.model.finding import Finding, Severity, Undecided
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import PerFileIgnore, UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandLine


def test_the_plain_run(mha_lint: CommandLine, folder: Path) -> None:
    outcome = mha_lint("check", "a.py::A")
    assert mha_lint.engine.spec.path == "a.py"
    assert mha_lint.engine.spec.qualname == "A"
    asked = mha_lint.engine.asked
    assert (asked.cwd, asked.select, asked.ignore) == (str(folder), ("ALL",), ())
    assert (asked.device, asked.dtype, asked.crosscheck) == ("cpu", None, True)
    assert "warning[MHA201] missing-scale" in outcome.out
    assert outcome.code == 1


def test_options_reach_the_engine(mha_lint: CommandLine, folder: Path) -> None:
    mha_lint(
        "check", "a.py::A", "--build", "A(4)", "--call", "torch.ones(1)", "--expect", "causal",
        "--expect", "scale=mup", "--select", "mha2,MHA1", "--ignore", "MHA201",
        "--extend-select", "MHA9", "--per-file-ignores", "t/*.py:MHA2,MHA101",
        "--severity", "MHA202=note", "--device", "auto", "--dtype", "float32",
        "--no-crosscheck", "--timeout", "2.5", "--strict", "-v",
    )  # fmt: skip
    spec, asked = mha_lint.engine.spec, mha_lint.engine.asked
    assert (spec.build, spec.call) == ("A(4)", "torch.ones(1)")
    assert spec.expect == ("causal", "scale=mup")
    assert (asked.select, asked.ignore, asked.extend_select) == (
        ("MHA2", "MHA1"), ("MHA201",), ("MHA9",),
    )  # fmt: skip
    assert asked.per_file_ignores == (PerFileIgnore("t/*.py", ("MHA2", "MHA101"), str(folder)),)
    assert asked.severity == (("MHA202", Severity.NOTE),)
    assert (asked.device, asked.dtype, asked.crosscheck) == ("auto", "float32", False)
    assert (asked.timeout, asked.strict, asked.verbose) == (2.5, True, True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--fail-on", "warning"], 1),
        (["--fail-on", "note"], 1),
        (["--fail-on", "error"], 0),
        (["--exit-zero"], 0),
    ],
)
def test_exit_code_of_a_warning(mha_lint: CommandLine, options: list[str], code: int) -> None:
    assert mha_lint("check", "a.py", *options).code == code


def test_a_failed_target_is_2_even_with_exit_zero(mha_lint: CommandLine) -> None:
    failed = TargetReport("b.py::B", "b.py", "B", 1, Status.FAILED, "no")
    mha_lint.engine.report = RunReport("0.1.0", None, (failed,))
    assert mha_lint("check", "a.py", "--exit-zero").code == 2


def test_undecided_is_2_only_if_strict(mha_lint: CommandLine) -> None:
    undecided = (Undecided("MHA101", None, "why"),)
    target = TargetReport("b.py::B", "b.py", "B", 1, Status.UNDECIDED, undecided=undecided)
    mha_lint.engine.report = RunReport("0.1.0", None, (target,))
    assert mha_lint("check", "a.py").code == 0
    assert mha_lint("check", "a.py", "--strict").code == 2


def test_what_does_not_exist_is_handed_on_as_not_checked(mha_lint: CommandLine) -> None:
    mha_lint("check", "b.py")
    (spec,) = mha_lint.engine.specs
    assert isinstance(spec, NotChecked)
    assert spec.reason == "no such file: b.py"


def test_without_a_target_the_current_folder_is_checked(mha_lint: CommandLine) -> None:
    mha_lint("check")
    assert mha_lint.engine.spec.path == "."
    assert not mha_lint.engine.spec.stated


def test_build_needs_one_target(mha_lint: CommandLine) -> None:
    outcome = mha_lint("check", "a.py", "a.py", "--build", "A()")
    assert outcome.code == 2
    assert "--build and --call need exactly one TARGET" in outcome.err


def test_report_file(mha_lint: CommandLine, folder: Path) -> None:
    outcome = mha_lint("check", "a.py", "--format", "json", "-o", "r.json")
    assert json.loads((folder / "r.json").read_text())["summary"]["findings"] == 1
    assert outcome.out == ""
    assert "1 warning in 1 module (0 attention sites), 0.0 s; written to" in outcome.err
    assert outcome.code == 1


@pytest.mark.parametrize(
    ("path", "says"), [("nowhere/r.json", "does not exist; make it first"), (".", "is a folder")]
)
def test_unwritable_report_file_is_told_before_the_work(
    mha_lint: CommandLine, path: str, says: str
) -> None:
    outcome = mha_lint("check", "a.py", "-o", path)
    assert outcome.code == 2
    assert outcome.err.startswith(f"mha-lint: {path}: ")
    assert says in outcome.err
    assert mha_lint.engine.settings is None


def test_what_user_code_prints_is_not_in_the_report(mha_lint: CommandLine) -> None:
    mha_lint.engine.prints = ["printed"]
    outcome = mha_lint("check", "a.py", "--format", "json", "--no-isolation")
    json.loads(outcome.out)
    assert "printed" in outcome.err


def test_quiet_prints_nothing_when_there_is_nothing(mha_lint: CommandLine) -> None:
    mha_lint.engine.report = RunReport("0.1.0", None, ())
    outcome = mha_lint("check", "a.py", "-q")
    assert (outcome.out, outcome.err, outcome.code) == ("", "", 0)


def test_ctrl_c_is_130(mha_lint: CommandLine) -> None:
    mha_lint.engine.raises = KeyboardInterrupt()
    outcome = mha_lint("check", "a.py")
    assert (outcome.code, outcome.err.strip()) == (130, "interrupted")


def test_what_the_engine_refuses_is_one_line(mha_lint: CommandLine) -> None:
    mha_lint.engine.raises = UsageError("--device cuda: this machine has no CUDA device")
    outcome = mha_lint("check", "a.py")
    assert outcome.err == "mha-lint: --device cuda: this machine has no CUDA device\n"
    assert outcome.code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fail-on", "fatal"], "'fatal' is not one of 'error', 'warning', 'note'"),
        (["--severity", "MHA201"], "not of the form CODE=LEVEL"),
        (["--severity", "MHA201=bad"], "LEVEL one of error, warning, note"),
        (["--per-file-ignores", "MHA201"], "not of the form PATTERN:CODE,CODE"),
        (["--select", ","], "names no rule"),
        (["--expect", "casual"], "unknown expectation 'casual'; did you mean causal?"),
        (["--timeout", "0"], "0.0 is not in the range x>0"),
        (["-v", "-q"], "-q and -v exclude each other"),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_usage_is_2_without_traceback(
    mha_lint: CommandLine, arguments: list[str], says: str
) -> None:
    outcome = mha_lint("check", "a.py", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_inspect_asks_the_engine_to_inspect(mha_lint: CommandLine, warning: Finding) -> None:
    outcome = mha_lint("inspect", "a.py::A")
    assert mha_lint.engine.spec.qualname == "A"
    assert outcome.out.startswith("a.py::A\n")
    assert warning.code not in outcome.out
    assert outcome.code == 0
