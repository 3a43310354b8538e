"""Files that are odd as files: huge, deeply nested, in odd codings, that name what we need, that
change or go away while they are checked. The run ends, and the good files are judged as ever.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.runner.hostile import FAULTY, GOOD, Ran, faults, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at what runs in /proc")

INIT = "        super().__init__()\n"


def acting(statements: str) -> str:
    """Return a module that does `statements`, in one line, when it is built."""
    return GOOD.replace(INIT, f"{INIT}        import os; {statements}\n")


NESTED = "cannot be parsed: it is nested too deeply, or too long"
CHANGED = "its file changed while it was checked"
FILES: dict[str, tuple[bytes | str, str]] = {
    "huge.py": (GOOD + "def f(x):\n    return x\n" * 100_000, "failed: huge.py is 2 MiB large"),
    "long_line.py": (GOOD + f"DATA = [{'0, ' * 20_000}]\n", "checked"),
    "long_name.py": (GOOD + f"{'x' * 100_000} = 1\n", "checked"),
    "deep_unary.py": (GOOD + f"X = {'-' * 100_000}1\n", f"failed: deep_unary.py {NESTED}"),
    "deep_sum.py": (GOOD + f"X = {'1 + ' * 50_000}1\n", f"failed: deep_sum.py {NESTED}"),
    "deep_calls.py": (GOOD + f"Y = x{'()' * 50_000}\n", f"failed: deep_calls.py {NESTED}"),
    "deep_parens.py": (
        GOOD + f"X = {'(' * 5000}1{')' * 5000}\n",
        "failed: syntax error at deep_parens.py:21: too many nested parentheses",
    ),
    "deep_branches.py": (
        GOOD + "if X:\n    pass\n" + "elif X:\n    pass\n" * 20_000,
        f"failed: deep_branches.py {NESTED}",
    ),
    "deep_blocks.py": (
        GOOD + "".join(f"{' ' * i}if 1:\n" for i in range(300)) + " " * 300 + "pass\n",
        "failed: syntax error at deep_blocks.py:121: too many levels of indentation",
    ),
    "null.py": (GOOD.encode() + b"\0\n", "failed: "),
    "bom.py": (b"\xef\xbb\xbf" + GOOD.encode(), "checked"),
    "crlf.py": (GOOD.replace("\n", "\r\n"), "checked"),
    "cr.py": (GOOD.replace("\n", "\r"), "checked"),
    "form_feeds.py": (GOOD.replace("\n\n\n", "\n\n\x0c\n"), "checked"),
    "latin.py": (b"# coding: latin-1\nNAME = '\xe9'\n" + GOOD.encode(), "checked"),
    "rot13.py": (
        b"# coding: rot13\n" + GOOD.encode(),
        "failed: rot13.py cannot be read in its coding rot13 (LookupError)",
    ),
    "no_coding.py": (
        b"# coding: none-such\n" + GOOD.encode(),
        "failed: no_coding.py states a coding that cannot be used",
    ),
    "not_utf8.py": (GOOD.encode() + b"# \xff\n", "failed: not_utf8.py is not UTF-8 text"),
    "utf16.py": (GOOD.encode("utf-16"), "failed: utf16.py is not UTF-8 text"),
    "names.py": (GOOD.replace("Attention", "Aufmerksamkeit\u6ce8\u610f"), "checked"),
    "escapes.py": (GOOD + "# \x1b[2J\x07 \u202e\n", "checked"),
    "empty.py": ("", "no target"),
    "deletes_itself.py": (acting("os.remove(__file__)"), f"failed: {CHANGED}"),
    "rewrites_itself.py": (
        acting("open(__file__, 'a').write('# clean')"),
        f"failed: {CHANGED}",
    ),
    "becomes_a_pipe.py": (acting("os.remove(__file__); os.mkfifo(__file__)"), f"failed: {CHANGED}"),
    "becomes_a_device.py": (
        acting("os.remove(__file__); os.symlink('/dev/zero', __file__)"),
        f"failed: {CHANGED}",
    ),
    "grows.py": (acting("os.truncate(__file__, 100 << 20)"), f"failed: {CHANGED}"),
    "moves_away.py": (acting("os.rename(__file__, __file__ + 'x')"), f"failed: {CHANGED}"),
}
SHADOWS = ("torch", "click", "mha_lint", "json", "socket", "typing", "linecache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all the files, and good ones around them."""
    here = tmp_path_factory.mktemp("odd")
    for name, (content, _) in FILES.items():
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (here / "first.py").write_text(GOOD)
    (here / "faulty.py").write_text(FAULTY)
    loops = here / "loops"
    loops.mkdir()
    (loops / "inside.py").write_text(GOOD)
    (loops / "again").symlink_to(loops)
    (loops / "self.py").symlink_to("self.py")
    (loops / "gone.py").symlink_to("none.py")
    os.mkfifo(loops / "pipe.py")
    shadows = here / "shadows"
    shadows.mkdir()
    for name in SHADOWS:
        (shadows / f"{name}.py").write_text(f"raise RuntimeError('not {name}')\n")
    (shadows / "attention.py").write_text(GOOD)
    return here


@pytest.fixture(scope="module")
def alone(folder: Path) -> Ran:
    return run(folder, ["first.py", "faulty.py"])


@pytest.fixture(scope="module")
def ran(folder: Path, alone: Ran) -> Ran:
    return run(folder, ["first.py", *FILES, "loops", "faulty.py"], jobs=4)


@pytest.mark.parametrize("name", [n for n in FILES if n != "empty.py"])
def test_each_ends_as_it_should(name: str, ran: Ran) -> None:
    found = ran.target(name)
    status, _, reason = FILES[name][1].partition(": ")
    assert found["status"] == status, found["reason"]
    assert (found["reason"] or "").startswith(reason)


def test_what_lies_in_a_folder_is_found_once(ran: Ran) -> None:
    told = [t["target"] for t in ran.report["targets"] if t["target"].startswith("loops/")]
    assert told == ["loops/gone.py", "loops/inside.py::Attention", "loops/pipe.py", "loops/self.py"]
    assert ran.target("loops/inside.py")["status"] == "checked"
    assert "pipe" in ran.target("loops/pipe.py")["reason"]


def test_the_report_is_whole_and_the_others_are_as_ever(ran: Ran, alone: Ran) -> None:
    assert faults(ran.report) == []
    assert ran.report["crashes"] == []
    assert ran.code == 2
    for name in ("first.py", "faulty.py"):
        assert ran.target(name) == alone.target(name)
    assert (ran.processes, ran.files) == ((), ())


def test_files_named_as_what_we_import_are_not_imported_by_us(folder: Path, alone: Ran) -> None:
    shadows = folder / "shadows"
    found = run(shadows, ["attention.py"])
    assert found.target("attention.py")["status"] == "checked"
    whole = run(folder, ["shadows"])
    told = {t["target"]: t["status"] for t in whole.report["targets"]}
    assert told["shadows/attention.py::Attention"] == "checked"
    assert alone.target("first.py")["sites"] == found.target("attention.py")["sites"]
