"""Tests of mha_lint.targets.code_text: strings and comments go, code stays."""

from __future__ import annotations

import contextlib
import io
import sys
import tokenize
from pathlib import Path

import pytest

from mha_lint.targets.code_text import code_of

PACKAGE = Path(__file__).parents[2] / "mha_lint"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1  # one", "x = 1  "),
        ("x = '# no'", "x =  0 "),
        ('"""a\n"b" \'\n"""\nx', " 0 \nx"),
        ("x = ''; y = ''''''", "x =  0 ; y =  0 "),
        (r"x = '\''; y = r'\'z'", "x =  0 ; y = r 0 "),
        ("x = 'a\\\nb'; y", "x =  0 ; y"),
        ("x = f'{a}'", "x = f 0 \n{a}"),
        ("x = f'a' + 'b{'", "x = f 0  +  0 "),
        ("x = f'''{a[\"k\"]}'''", "x = f 0 \n{a[ 0 ]}"),
    ],
)
def test_what_is_left(text: str, code: str) -> None:
    assert code_of(text) == code


@pytest.mark.parametrize(
    "text",
    [
        "x = 'a",
        "x = '''a",
        "x = f\"{a[\"k\"]}\"",
        "x = f\"{a['}'][\"k\"]}\"",
        "!ls 'here'",
        "# %%\nx = 1",
    ],
)  # fmt: skip
def test_what_cannot_be_told(text: str) -> None:
    assert code_of(text) is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="f-strings are no single tokens any more")
@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_pythons_own_tokenizer_agrees(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = code_of(text)
    if code is None:  # cannot be told
        return
    want = _words(text)
    assert _words(f"({code}\n)")[: len(want)] == want


def _words(text: str) -> list[str]:
    names: list[str] = []
    with contextlib.suppress(tokenize.TokenError):  # brackets of f-strings, at the end
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            names += [token.string] if token.type == tokenize.NAME else []
    return [
        name for name in names if name.lower() not in ("f", "r", "b", "rb", "rf", "fr")
    ]  # of strings
