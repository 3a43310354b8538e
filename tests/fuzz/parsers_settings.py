"""Settings as they should not be: TOML, and the values of options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mha_lint.cli.configuration import Configuration, read_configuration
from mha_lint.cli.parameters import code_level, codes, expectation, pattern_codes
from mha_lint.cli.request import CommandLine, make_request
from mha_lint.cli.toml_values import ConfigurationError
from mha_lint.model.report import NotChecked
from mha_lint.model.settings import UsageError
from mha_lint.rulebook.select import ignored_in, matches, severity_of
from mha_lint.targets.resolve import expand
from tests.fuzz.parsers_watch import one_line, pick, require

KEYS = (
    "select", "ignore", "extend-select", "per-file-ignores", "severity", "fail-on", "exit-zero", "expect",
    "format", "output", "device", "dtype", "no-crosscheck", "strict", "timeout", "verbose", "quiet", "target",
    "path", "class", "build", "call", "module", "selct", "x", '""', '"a.b"', '"\\u0000"', "a.b.c", "é",
)  # fmt: skip
VALUES = (
    "1", "0", "-1", "inf", "nan", "1e400", "9" * 400, "9" * 5000, "0x" + "f" * 400, "true", "false", "''",
    '"ALL"', '"MHA201"', '["MHA2", "all"]', '["causal"]', '"error"', '"json"', '"x.py"', '"a\\u0000b.py"',
    '"' + "n" * 5000 + '"', '"\\uD800"', "1979-05-27", "1979-13-99T99:99:99Z", "07:32:00", "[]", "[[]]", "{}",
    "{a = 1}", "[1, 'a']", "[{path = 'x.py'}]", '"""a\nb"""', "'''\n'''", "[" * 2000, "[" * 2000 + "]" * 2000,
    "{a=" * 900 + "1" + "}" * 900, '["*\\u001b[31m"]', '"[!"', '"~/x"', '"/dev/zero"', '"../../x.py"',
    '"x.py::A"', '"a:b"', "1_0", "+1", "1e1", "60.0", '{"*.py" = ["MHA2"]}', '{MHA201 = "note"}',
)  # fmt: skip
WHOLE = (
    "", "[tool]", "tool = 1", "[tool.mha-lint]", "[[tool.mha-lint]]", "[tool]\nmha-lint = 3", "[" * 5000,
    "a." * 5000 + "a = 1", "x = [" * 3000, "[tool.mha-lint]\n[tool.mha-lint]", "\x00", "\ufeff[tool.mha-lint]",
    "\r", "# " + "x" * 9000, "[tool.mha-lint.target]\npath='x'", "[[tool.mha-lint.target]]\npath='x.py'",
    "[[tool.mha-lint.target]]\nmodule='a'\nclass='b'", "[[tool.mha-lint.target]]\npath=''",
    "[[tool.mha-lint.target]]\npath=\"\\u0000\"", "[[tool.mha-lint.target]]\nmodule=''\nclass=''",
)  # fmt: skip


@st.composite
def tomls(draw: DrawFn) -> bytes:
    """Return the bytes of a configuration."""
    rows = ["[tool.mha-lint]"] if draw(st.integers(0, 5)) else []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.integers(0, 3)) == 0:
            rows.append(draw(pick(("[[tool.mha-lint.target]]", "[tool.mha-lint.severity]"))))
        key, value = draw(pick(KEYS)), draw(pick(VALUES))
        rows.append(f"{key} = {value}")
    text = "\n".join(rows) if draw(st.integers(0, 4)) else draw(pick(WHOLE))
    data = bytearray(text.encode("utf-8"))
    for _ in range(draw(pick((0, 0, 0, 1, 2)))):
        data.insert(draw(st.integers(0, len(data))), draw(st.integers(0, 255)))
    return bytes(data)


def check_toml(data: bytes, folder: Path) -> None:
    """Read a configuration, and make of it what a run is asked to do."""
    file = folder / "pyproject.toml"
    file.write_bytes(data)
    try:
        found = read_configuration(file, folder)
    except ConfigurationError as error:
        one_line(str(error))
        require(str(file) in str(error), "a message without the file's name")
        _request(folder, CommandLine())
        return
    require(isinstance(found, Configuration), "no configuration")
    require(repr(found) == repr(read_configuration(file, folder)), "two results for one file")
    if found.timeout is not None:
        require(0 < found.timeout < float("inf"), "a time limit that is none")
    request = _request(folder, CommandLine())
    if request is None:
        return
    for spec in expand(
        [s for s in request.specs if not isinstance(s, NotChecked)], cwd=str(folder)
    ):
        if isinstance(spec, NotChecked):
            one_line(spec.reason)
    for pattern in found.per_file_ignores:
        ignored_in(str(folder / "x.py"), "MHA201", [pattern])
    severity_of("MHA201", "error", request.settings)  # type: ignore[arg-type]


def _request(folder: Path, line: CommandLine) -> Any:
    try:
        return make_request((), line, folder)
    except UsageError as error:
        one_line(str(error))
    except click.UsageError as error:
        one_line(error.message)
    return None


words: SearchStrategy[str] = st.one_of(
    st.text(max_size=30),
    st.lists(
        pick(
            ("MHA201", "mha2", "ALL", ",", "=", ":", "note", "error", " ", "*", "[", "\x00", "\ud800", "İ", "ß",
             "tests/*.py", "causal", "mask=keep", "scale=", "\n", "\x1b[31m", "a" * 3000, "::", "A", "b.py",
             ".", "/", "~", "..", "config.json", "a.b:c", "@3")
        ),
        max_size=6,
    ).map("".join),
)  # fmt: skip
"""Texts as they stand on a command line."""
PARAMETERS: tuple[Callable[[str], object], ...] = (codes, code_level, pattern_codes, expectation)


def check_parameters(text: str, folder: Path) -> None:
    """Read the value of an option as each option would."""
    for read in PARAMETERS:
        try:
            found = read(text)
        except click.BadParameter as error:
            one_line(error.message, 100_000)  # it repeats what was written
            continue
        require(found == read(text), "two results for one text")
    if "," not in text:
        matches(text.upper(), "MHA201")
