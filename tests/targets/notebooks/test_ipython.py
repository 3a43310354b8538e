"""Tests of mha_lint.targets.notebooks.ipython."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from mha_lint.targets.notebooks.ipython import plain_cell, plain_python, plain_script

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("%matplotlib inline", ""),
        ("%load_ext autoreload  # twice", ""),
        ("!pip install -q einops", ""),
        ("!!ls", ""),
        ("    !mkdir data", "    pass"),
        ("torch.matmul?", ""),
        ("nn.Linear??", ""),
        ("?print", ""),
        ("/f 1", ""),
        ("files = !ls *.txt", "files = []"),
        ("a, b = %magic x", "a, b = None"),
        ("%time out = layer(x)", "out = layer(x)"),
        ("%timeit -n 10 -r3 layer(x)", "layer(x)"),
        ("  %time layer(x)", "  layer(x)"),
        ("t = %timeit -o 1 + 1", "t =" + " " * 12 + "1 + 1"),
        ("t = %time f(x)", "t =       f(x)"),
        ("%time no python", ""),
        ("x = 5 % 3", "x = 5 % 3"),
        ("x != y", "x != y"),
        ("# what is this?", "# what is this?"),
        ("s = 'is = !this'", "s = 'is = !this'"),
    ],
)
def test_one_line(line: str, plain: str) -> None:
    assert plain_python(line) == plain


def test_lines_within_brackets_and_strings_are_left_alone() -> None:
    text = 'x = (7\n% 3)\ns = """\n%no\n!no\n"""\ny = 7 \\\n% 3\nt = "it\'s (" # it\'s (\n'
    assert plain_python(text) == text
    assert plain_python(text + "!ls\n") == text + "\n"


def test_a_command_over_several_lines_goes_as_a_whole() -> None:
    assert plain_python("!pip install a \\\n  b \\\n  c\nx = 1") == "\n\n\nx = 1"


def test_python_files_are_never_changed() -> None:
    for path in sorted((ROOT / "mha_lint").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert plain_python(text) == text, path


@pytest.mark.parametrize(
    ("cell", "plain"),
    [
        ("%%time\nx = 1", "\nx = 1"),
        ("%%capture out\n%%time\n!ls\nx = 1", "\n\n\nx = 1"),
        ("#@title Setup\n\n%%capture\n!ls\nx = 1", "#@title Setup\n\n\n\nx = 1"),
        ("%%timeit -n 3\nf(x)", "\nf(x)"),
        ("%%bash\nls", None),
        ("%%html\n<b>x</b>", None),
        ("%%writefile a.py\nclass A: pass", None),
        ("%%unknown\nx = 1", "\nx = 1"),
        ("x = 1\n%%time", "x = 1\n"),
    ],
)
def test_cell_magics(cell: str, plain: str | None) -> None:
    assert plain_cell(cell) == plain


def test_an_exported_script_is_read() -> None:
    text = "# %%\r\n%matplotlib inline\r\n!pip install x\r\nx = 1\r\n"
    plain = plain_script(text)
    assert plain == "# %%\n\n\nx = 1\n"
    assert isinstance(ast.parse(plain).body[0], ast.Assign)


def test_a_script_that_was_not_exported_stays_broken() -> None:
    assert plain_script("x = foo?\n") == "x = foo?\n"
    assert plain_script("foo?\n") == "foo?\n"
    assert plain_script("# In[3]:\nfoo?\n") == "# In[3]:\n\n"


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 50_000 + "(",
        "%time" + " " * 50_000 + "\n(",
        "%" * 20_000 + " " * 20_000 + "\n(",
        "a " * 9_000 + "= %time x\n(",
    ],
    ids=["empty lines", "spaces", "signs", "words"],
)
def test_long_lines_and_many_empty_ones_take_no_time(text: str) -> None:
    started = time.process_time()
    assert plain_script(text).count("\n") == text.count("\n")
    assert plain_python(text).count("\n") == text.count("\n")
    assert time.process_time() - started < 2
