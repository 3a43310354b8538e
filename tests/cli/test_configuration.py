"""Configuration files: where they are found, what they may say, and how errors read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mha_lint.cli.configuration import find_configuration, read_configuration
from mha_lint.cli.toml_values import ConfigurationError
from mha_lint.model.finding import Severity
from mha_lint.model.settings import PerFileIgnore
from mha_lint.model.target import TargetSpec

if TYPE_CHECKING:
    from tests.cli.conftest import CommandLine

WHOLE = """
[tool.mha-lint]
select = ["mha1", "ALL"]
ignore = ["MHA108"]
extend-select = ["MHA901"]
fail-on = "error"
exit-zero = true
format = "json"
output = "r.json"
device = "auto"
dtype = "float32"
no-crosscheck = true
strict = true
timeout = 5
verbose = true
quiet = false
expect = ["self"]
[tool.mha-lint.severity]
MHA201 = "note"
[tool.mha-lint.per-file-ignores]
"models/t5.py" = ["MHA201"]
[[tool.mha-lint.target]]
path = "models/attention.py"
class = "CausalSelfAttention"
build = "CausalSelfAttention(Config(n_embd=64, n_head=4))"
call = "torch.randn(2, 10, 64)"
expect = ["causal"]
[[tool.mha-lint.target]]
module = "package.module"
class = "make"
[[tool.mha-lint.target]]
path = "/elsewhere/x.py"
"""


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_every_key_is_read(tmp_path: Path) -> None:
    config = read_configuration(write(tmp_path / "sub", WHOLE), tmp_path)
    assert (config.select, config.ignore) == (("MHA1", "ALL"), ("MHA108",))
    assert config.extend_select == ("MHA901",)
    assert (config.fail_on, config.exit_zero, config.strict) == (Severity.ERROR, True, True)
    assert (config.format, config.output) == ("json", "r.json")
    assert (config.device, config.dtype, config.no_crosscheck) == ("auto", "float32", True)
    assert (config.timeout, config.verbose, config.quiet) == (5.0, True, False)
    assert config.severity == (("MHA201", Severity.NOTE),)
    folder = str(tmp_path / "sub")
    assert config.per_file_ignores == (PerFileIgnore("models/t5.py", ("MHA201",), folder),)
    assert config.expect == ("self",)


def test_target_tables(tmp_path: Path) -> None:
    first, second, third = read_configuration(write(tmp_path / "sub", WHOLE), tmp_path).target
    assert first == TargetSpec(
        text="sub/models/attention.py::CausalSelfAttention",
        path=str(tmp_path / "sub/models/attention.py"),
        qualname="CausalSelfAttention",
        build="CausalSelfAttention(Config(n_embd=64, n_head=4))",
        call="torch.randn(2, 10, 64)",
        expect=("causal",),
    )
    assert (second.text, second.module, second.path) == (
        "package.module:make",
        "package.module",
        None,
    )
    assert (third.text, third.path) == ("/elsewhere/x.py", "/elsewhere/x.py")


def test_the_nearest_file_with_a_table_counts(tmp_path: Path) -> None:
    outer = write(tmp_path, "[tool.mha-lint]\n")
    write(tmp_path / "a", "[project]\nname = 'x'\n")
    inner = write(tmp_path / "a" / "b", "[tool.mha-lint]\n")
    (tmp_path / "a" / "c").mkdir()
    assert find_configuration(tmp_path / "a" / "b") == inner
    assert find_configuration(tmp_path / "a" / "c") == outer


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("slect = []", "[tool.mha-lint]: unknown key 'slect'; did you mean select?"),
        ("zzz = 1", "unknown key 'zzz'; known keys are device, "),
        ('build = "A()"', "it belongs into a [[tool.mha-lint.target]] table"),
        ('select = "ALL"', "[tool.mha-lint] select: must be a list of strings"),
        ("select = [1]", "must be a list of strings"),
        ('fail-on = "fatal"', "fail-on: must be one of error, warning, note, not 'fatal'"),
        ("strict = 1", "strict: must be true or false, not 1"),
        ("timeout = 0", "timeout: must be a number of seconds above 0"),
        ("timeout = true", "timeout: must be a number of seconds above 0"),
        ('format = "xml"', "format: must be one of text, concise, json, not 'xml'"),
        ('expect = ["casual"]', "unknown expectation 'casual'; did you mean causal?"),
        ('severity = {MHA201 = "bad"}', "severity MHA201: must be one of error"),
        ("severity = 1", "severity: must be a table, not 1"),
        ('target = {path = "x"}', "must be written [[tool.mha-lint.target]]"),
        ("target = [{}]", "[[tool.mha-lint.target]] number 1: needs either path or module"),
        ('target = [{path = "x", module = "y"}]', "needs either path or module"),
        ('target = [{module = "y"}]', "module needs class as well"),
        ('target = [{path = "x"}, {pth = "x"}]', "number 2: unknown key 'pth'; did you mean path?"),
        ("target = [3]", "number 1: must be a table, not 3"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, f"[tool.mha-lint]\n{text}\n")
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(path, tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[tool.mha-lint\n", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"[tool]\n", "has no [tool.mha-lint] table"),
        (b"tool = 3\n", "has no [tool.mha-lint] table"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    mha_lint: CommandLine, folder: Path, content: bytes, says: str
) -> None:
    (folder / "c.toml").write_bytes(content)
    outcome = mha_lint("check", "a.py", "--config", "c.toml")
    assert outcome.code == 2
    assert outcome.err.startswith("mha-lint: c.toml: ")
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_missing_file_is_named(mha_lint: CommandLine) -> None:
    outcome = mha_lint("check", "a.py", "--config", "none.toml")
    assert outcome.err == "mha-lint: none.toml: cannot be read (No such file or directory)\n"
    assert outcome.code == 2


def test_the_targets_of_the_configuration_are_checked(mha_lint: CommandLine, folder: Path) -> None:
    write(folder, '[tool.mha-lint]\n[[tool.mha-lint.target]]\npath = "a.py"\nclass = "A"\n')
    mha_lint("check")
    assert mha_lint.engine.spec.text == "a.py::A"
    assert mha_lint.engine.spec.path == str(folder / "a.py")


def test_a_named_class_is_built_as_its_table_says(mha_lint: CommandLine, folder: Path) -> None:
    write(
        folder,
        '[tool.mha-lint]\n[[tool.mha-lint.target]]\npath = "a.py"\nclass = "A"\nbuild = "A(1)"\n',
    )
    mha_lint("check", "a.py::A")
    assert mha_lint.engine.spec.build == "A(1)"
    mha_lint("check", "a.py::A", "--build", "A(2)")
    assert mha_lint.engine.spec.build == "A(2)"
    mha_lint("check", "a.py::A", "--isolated")
    assert mha_lint.engine.spec.build is None


def test_the_command_line_goes_before_the_configuration(
    mha_lint: CommandLine, folder: Path
) -> None:
    write(
        folder,
        """
        [tool.mha-lint]
        select = ["MHA1"]
        ignore = ["MHA108"]
        expect = ["cross"]
        dtype = "float32"
        fail-on = "error"
        """,
    )
    assert mha_lint("check", "a.py").code == 0
    assert mha_lint.engine.spec.expect == ("cross",)
    assert mha_lint("check", "a.py", "--fail-on", "warning").code == 1
    mha_lint("check", "a.py", "--dtype", "float16", "--expect", "self", "--ignore", "MHA101")
    assert mha_lint.engine.spec.expect == ("self",)
    asked = mha_lint.engine.asked
    assert (asked.dtype, asked.select, asked.ignore) == ("float16", ("MHA1",), ("MHA108", "MHA101"))
    mha_lint("check", "a.py", "--select", "MHA2")
    assert (mha_lint.engine.asked.select, mha_lint.engine.asked.ignore) == (("MHA2",), ())


def test_isolated_reads_no_file(mha_lint: CommandLine, folder: Path) -> None:
    write(folder, "[tool.mha-lint]\nslect = []\n")
    assert mha_lint("check", "a.py").code == 2
    assert mha_lint("check", "a.py", "--isolated").code == 1
    outcome = mha_lint("check", "a.py", "--isolated", "--config", "pyproject.toml")
    assert "--config and --isolated exclude each other" in outcome.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 3000, "is not valid TOML (nested too deeply); mend it"),
        (".".join(["a"] * 30000) + " = 1", "is not valid TOML (nested too deeply); mend it"),
        ("[" + " . ".join(["'a'"] * 999) + "]", "is not valid TOML (nested too deeply); mend it"),
        ("a = " + "9" * 5000, "is not valid TOML (Exceeds the limit"),
        ("[tool.mha-lint]\ntimeout = inf", "timeout: must be a number of seconds above 0, not inf"),
        ("[tool.mha-lint]\ntimeout = 0x" + "f" * 400, "must be a number of seconds above 0, not "),
        ("[tool.mha-lint]\nformat = 0x" + "f" * 9000, "not a number of thousands of digits"),
        ("[tool.mha-lint]\nformat = '''\na\nb'''", r"not 'a\nb'"),
        ("[tool.mha-lint]\n" + "k" * 9000 + " = 1", "unknown key 'kkkk"),
        ("[tool.mha-lint]\nmemory = 0x" + "f" * 9000, "must be a size as"),
        ("[tool.mha-lint]\njobs = 99999999999999", "must be a whole number above 0"),
    ],
    ids=[
        "deep",
        "dotted",
        "quoted",
        "long",
        "inf",
        "large",
        "largest",
        "lines",
        "key",
        "size",
        "count",
    ],
)
def test_hostile_values_are_errors_of_one_short_line(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(path, tmp_path)
    told = str(caught.value)
    assert told.startswith(f"{path}: ") and reason in told
    assert told.isprintable() and len(told) < 1000


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    assert find_configuration(tmp_path) != tmp_path / "pyproject.toml"
    with pytest.raises(ConfigurationError, match="is no regular file"):
        read_configuration(tmp_path / "pyproject.toml", tmp_path)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(b"\xef\xbb\xbf[tool.mha-lint]\nstrict = true\n")
    assert read_configuration(path, tmp_path).strict is True
