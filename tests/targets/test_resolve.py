"""Tests of mha_lint.targets.resolve."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.resolve import expand, parse_target, python_files

Write = Callable[..., Path]

SDPA = """
class One(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)
class Two(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)
"""


def _only(text: str, cwd: Path) -> TargetSpec | NotChecked:
    parsed = parse_target(text, cwd=str(cwd))
    if isinstance(parsed, NotChecked):
        return parsed
    expanded = expand([parsed], cwd=str(cwd))
    assert len(expanded) == 1
    return expanded[0]


def test_a_file_yields_its_candidates(write: Write, tmp_path: Path) -> None:
    write(SDPA, "m.py")
    parsed = parse_target("m.py", cwd=str(tmp_path))
    assert isinstance(parsed, TargetSpec)
    assert not parsed.stated
    specs = expand([parsed], cwd=str(tmp_path))
    assert [(s.text, s.line, s.stated) for s in specs if isinstance(s, TargetSpec)] == [
        ("m.py::One", 5, False),
        ("m.py::Two", 8, False),
    ]


def test_a_named_class_is_stated(write: Write, tmp_path: Path) -> None:
    write(SDPA, "m.py")
    spec = _only("m.py::Two", tmp_path)
    assert isinstance(spec, TargetSpec)
    assert (spec.path, spec.qualname, spec.stated, spec.line) == ("m.py", "Two", True, 8)


def test_an_unknown_class_names_the_close_ones(write: Write, tmp_path: Path) -> None:
    write(SDPA, "m.py")
    outcome = _only("m.py::Twoo", tmp_path)
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == "m.py has no class or function Twoo"
    assert outcome.hint == "did you mean Two?"
    assert outcome.target == "m.py::Twoo"


def test_an_unknown_class_names_the_candidates(write: Write, tmp_path: Path) -> None:
    write(SDPA, "m.py")
    outcome = _only("m.py::Zebra", tmp_path)
    assert isinstance(outcome, NotChecked)
    assert outcome.hint == "what can hold attention there: One, Two"


def test_a_name_that_is_only_imported_passes(write: Write, tmp_path: Path) -> None:
    write("from somewhere import Thing\n", "m.py")
    assert isinstance(_only("m.py::Thing", tmp_path), TargetSpec)


def test_a_star_import_may_bring_any_name(write: Write, tmp_path: Path) -> None:
    write("from somewhere import *\n", "m.py")
    assert isinstance(_only("m.py::Thing", tmp_path), TargetSpec)


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("nope.py", "no such file: nope.py", ""),
        ("mm.py", "no such file: mm.py", "did you mean m.py?"),
        ("m.py::", "m.py:: names nothing after ::", "write path.py::Class"),
        ("sub::A", "sub is a folder, it has no A", "write sub/FILE.py::A"),
        ("empty", "no Python files below empty",
         "hidden folders, virtual environments and build folders are skipped"),
        ("bad.py", "syntax error at bad.py:1: invalid syntax", ""),
        ("bad.py::A", "syntax error at bad.py:1: invalid syntax", ""),
        ("note.txt", "note.txt is not a Python file",
         "name a file that ends in .py or .ipynb, a model's config.json, or a folder"),
        ("m.py:One", "no such file: m.py:One", "two colons: m.py::One"),
        ("m.py::One::forward", "One.forward is a method, and a target is a class or a function",
         "name the class: m.py::One"),
        ("m.py::One.forward", "One.forward is a method, and a target is a class or a function",
         "name the class: m.py::One"),
        ("pad.py", "no such file: pad.py", "did you mean bad.py?"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(
    write: Write, tmp_path: Path, text: str, reason: str, hint: str
) -> None:
    write(SDPA, "m.py")
    write(SDPA, "sub/inner.py")
    write("def (:\n", "bad.py", head=False)
    write("softmax", "note.txt", head=False)
    (tmp_path / "empty").mkdir()
    outcome = _only(text, tmp_path)
    assert isinstance(outcome, NotChecked)
    assert (outcome.reason, outcome.hint) == (reason, hint)
    assert outcome.target == text


def test_a_file_without_attention_yields_nothing(write: Write, tmp_path: Path) -> None:
    write("x = 1\n", "m.py")
    parsed = parse_target("m.py", cwd=str(tmp_path))
    assert isinstance(parsed, TargetSpec)
    assert expand([parsed], cwd=str(tmp_path)) == []


def test_folders_skip_what_is_not_the_users(write: Write, tmp_path: Path) -> None:
    for name in (
        "a/x.py", "a/.hidden/x.py", "a/venv/x.py", "a/build/x.py", "a/node_modules/x.py",
        "a/__pycache__/x.py", "a/own_env/x.py", "a/b/c/y.py", "a/x.egg-info/x.py", "a/.x.py",
    ):  # fmt: skip
        write(SDPA, name)
    (tmp_path / "a/own_env/pyvenv.cfg").write_text("home = /usr\n")
    files = [str(p.relative_to(tmp_path)) for p in python_files(tmp_path / "a")]
    assert files == ["a/x.py", "a/b/c/y.py"]
    parsed = parse_target("a", cwd=str(tmp_path))
    assert isinstance(parsed, TargetSpec)
    specs = expand([parsed], cwd=str(tmp_path))
    assert [s.text for s in specs if isinstance(s, TargetSpec)] == [
        "a/x.py::One", "a/x.py::Two", "a/b/c/y.py::One", "a/b/c/y.py::Two",
    ]  # fmt: skip


def test_one_broken_file_in_a_folder_does_not_hide_the_others(write: Write, tmp_path: Path) -> None:
    write(SDPA, "a/good.py")
    write("def (: q @ k\n", "a/bad.py", head=False)
    parsed = parse_target("a", cwd=str(tmp_path))
    assert isinstance(parsed, TargetSpec)
    outcomes = expand([parsed], cwd=str(tmp_path))
    assert isinstance(outcomes[0], NotChecked)
    assert outcomes[0].target == "a/bad.py"
    assert [type(o).__name__ for o in outcomes] == ["NotChecked", "TargetSpec", "TargetSpec"]


def test_a_broken_file_that_can_hold_no_attention_is_not_told(write: Write, tmp_path: Path) -> None:
    write("def (:\n", "a/bad.py", head=False)
    folder = parse_target("a", cwd=str(tmp_path))
    assert isinstance(folder, TargetSpec)
    assert expand([folder], cwd=str(tmp_path)) == []
    named = parse_target("a/bad.py", cwd=str(tmp_path))
    assert isinstance(named, TargetSpec)
    (outcome,) = expand([named], cwd=str(tmp_path))
    assert isinstance(outcome, NotChecked)
    assert outcome.reason.startswith("syntax error at a/bad.py:1")


def test_modules_below_the_working_directory_become_files(write: Write, tmp_path: Path) -> None:
    write(SDPA, "pkg/attn.py")
    spec = _only("pkg.attn:One", tmp_path)
    assert isinstance(spec, TargetSpec)
    assert (spec.module, spec.path, spec.qualname) == ("pkg.attn", "pkg/attn.py", "One")
    whole = parse_target("pkg.attn", cwd=str(tmp_path))
    assert isinstance(whole, TargetSpec)
    assert (whole.path, whole.qualname) == ("pkg/attn.py", None)


def test_installed_modules_stay_names(tmp_path: Path) -> None:
    spec = parse_target("torch.nn:MultiheadAttention", cwd=str(tmp_path))
    assert isinstance(spec, TargetSpec)
    assert (spec.module, spec.path) == ("torch.nn", None)


def test_a_build_expression_names_the_class(write: Write, tmp_path: Path) -> None:
    write(SDPA, "m.py")
    spec = TargetSpec(text="m.py", path="m.py", build="Two().half()", stated=False)
    (expanded,) = expand([spec], cwd=str(tmp_path))
    assert isinstance(expanded, TargetSpec)
    assert expanded.qualname == "Two"


def test_a_configured_file_that_is_no_python_is_refused_too(write: Write, tmp_path: Path) -> None:
    write("{}", "note.txt", head=False)
    spec = TargetSpec(text="note.txt", path=str(tmp_path / "note.txt"))
    (outcome,) = expand([spec], cwd=str(tmp_path))
    assert isinstance(outcome, NotChecked)
    assert outcome.reason.endswith("note.txt is not a Python file")


def test_of_several_definitions_the_last_one_is_in_force(write: Write, tmp_path: Path) -> None:
    write(SDPA + "class One(nn.Module):\n    pass\n", "m.py")
    spec = _only("m.py::One", tmp_path)
    assert isinstance(spec, TargetSpec)
    assert spec.line == 11


def test_a_pipe_in_a_folder_is_told_and_not_waited_for(write: Write, tmp_path: Path) -> None:
    write(SDPA, "a/good.py")
    os.mkfifo(tmp_path / "a" / "pipe.py")
    (tmp_path / "a" / "zz.py").symlink_to("zz.py")
    (tmp_path / "a" / "up").symlink_to("..")
    parsed = parse_target("a", cwd=str(tmp_path))
    assert isinstance(parsed, TargetSpec)
    found = expand([parsed], cwd=str(tmp_path))
    named = [one.text for one in found if isinstance(one, TargetSpec)]
    assert named == ["a/good.py::One", "a/good.py::Two"]
    told = [one.reason for one in found if isinstance(one, NotChecked)]
    assert told[0] == "a/pipe.py is no regular file, but a pipe, socket or device"
    assert told[1].startswith("a/zz.py cannot be read: ")
    assert len(told) == 2


def test_a_folder_that_cannot_be_read_is_told(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(SDPA, "a/good.py")
    write(SDPA, "a/shut/other.py")
    scandir = os.scandir

    def shut(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", shut)
    parsed = parse_target("a", cwd=str(tmp_path))
    assert isinstance(parsed, TargetSpec)
    first = expand([parsed], cwd=str(tmp_path))[0]
    assert isinstance(first, NotChecked)
    assert first.reason == "the folder a/shut cannot be read: Permission denied"


@pytest.mark.parametrize("text", ["x" * 3000, "x" * 3000 + ".py", "x" * 300 + ".py::A", "a\0b.py"])
def test_a_target_that_no_path_can_be_is_told(text: str, tmp_path: Path) -> None:
    parsed = parse_target(text, cwd=str(tmp_path))
    assert isinstance(parsed, NotChecked)
    assert parsed.reason.isprintable()


def test_a_named_pipe_is_called_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    parsed = parse_target("pipe.py", cwd=str(tmp_path))
    assert isinstance(parsed, NotChecked)
    assert parsed.reason == "pipe.py is no regular file, but a pipe, socket or device"


@pytest.mark.parametrize("build", ["A\0", "(" * 500, "a" + ".b" * 3000 + "()", r"'\d'", "x = 1"])
def test_a_build_that_names_no_class_is_left_alone(
    build: str, write: Write, tmp_path: Path
) -> None:
    write(SDPA, "m.py")
    spec = TargetSpec(text="m.py", path="m.py", build=build)
    (found,) = expand([spec], cwd=str(tmp_path))
    assert isinstance(found, TargetSpec) and found.qualname is None


def test_an_import_with_a_name_too_long_for_a_file_is_no_file(write: Write, tmp_path: Path) -> None:
    write(f"from {'m' * 300} import x\n{SDPA}", "m.py")
    found = _only("m.py::Two", tmp_path)
    assert isinstance(found, TargetSpec) and found.line == 10
