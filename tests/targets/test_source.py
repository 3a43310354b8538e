"""Tests of mha_lint.targets.source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mha_lint.targets.source import SourceError, cached_source, read_source


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        read_source(str(tmp_path / "nope.py"))
    assert caught.value.reason == f"no such file: {tmp_path / 'nope.py'}"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        read_source(str(tmp_path))
    assert caught.value.reason == f"{tmp_path} is a folder, not a file"


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ndef f(:\n    pass\n")
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert caught.value.reason == f"syntax error at {path}:2: invalid syntax"


def test_bytes_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# caf\xe9\nx = 1\n")
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert caught.value.reason.startswith(f"{path} is not UTF-8 text")
    assert caught.value.hint == "save it as UTF-8, or state its coding in line 1"


def test_a_stated_coding_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n")
    assert "café" in read_source(str(path)).text


def test_null_bytes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "null.py"
    path.write_bytes(b"x = 1\x00\n")
    with pytest.raises(SourceError):
        read_source(str(path))


def test_the_cache_sees_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("x = 1\n")
    assert cached_source(str(path)).text == "x = 1\n"
    path.write_text("x = 2\n")
    os.utime(path, ns=(10**18, 10**18))
    assert cached_source(str(path)).text == "x = 2\n"


def test_an_exported_notebook_is_read_without_its_magics(tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    path.write_text("# %%\n%matplotlib inline\nx = 1\n")
    assert read_source(str(path)).text == "# %%\n\nx = 1\n"
    path.write_text("# %%\n%matplotlib inline\nx = (\n")
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert caught.value.reason == f"syntax error at {path}:3: '(' was never closed"


def test_a_notebook_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    path.write_text("{")
    with pytest.raises(SourceError, match="is no notebook that can be read"):
        read_source(str(path))


@pytest.mark.parametrize("coding", ["hex", "rot13", "undefined", "idna", "punycode"])
def test_a_coding_that_is_none_of_texts_is_told(coding: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_bytes(f"# coding: {coding}\nx = '".encode() + b"\xff'\n")
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert caught.value.reason.startswith(f"{path} ")
    assert caught.value.hint == "save it as UTF-8, or state its coding in line 1"


def test_a_coding_that_python_does_not_know_is_told(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_bytes(b"# coding: klingon\n")
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert f"{path} states a coding that cannot be used (unknown encoding" in caught.value.reason


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    for name in ("pipe.py", "zero.py"):
        with pytest.raises(SourceError) as caught:
            read_source(str(tmp_path / name))
        assert caught.value.reason == (
            f"{tmp_path / name} is no regular file, but a pipe, socket or device"
        )


@pytest.mark.parametrize("name", ["a\0.py", "a" * 400 + ".py"])
def test_a_name_that_no_file_can_have_is_told(name: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_source(name)
    assert caught.value.reason.isprintable()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    with path.open("wb") as file:
        file.truncate(40 << 20)
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert caught.value.reason == f"{path} is 40 MiB large, more than the 2 MiB that are read"


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "-" * 20000 + "1", "x" + "[0]" * 50000, f"from a{'.a' * 10000} import b"],
)
def test_deep_nesting_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.py"
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert "syntax error" in caught.value.reason or caught.value.reason == (
        f"{path} cannot be parsed: it is nested too deeply, or too long"
    )


def test_a_message_is_one_line_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "a\nerror b.py"
    path.write_text("(")
    with pytest.raises(SourceError) as caught:
        read_source(str(path))
    assert r"a\nerror b.py" in caught.value.reason and "\n" not in caught.value.reason


def test_what_python_lets_pass_at_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_bytes(b"x = 1\r\n\\\r\n")
    assert read_source(str(path)).text == "x = 1\n\n"
    path.write_bytes(b"x = 1 +\\\r\n")
    with pytest.raises(SourceError, match="syntax error"):
        read_source(str(path))
