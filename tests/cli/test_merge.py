"""``mha-lint merge``: the shards of a run give what the run gives, and nothing less is taken."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mha_lint.cli.main import run

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
COPIED = [
    "correct/targets/comment_kept_on_purpose.py",
    "correct/targets/comment_that_hides.py",
    "faulty/targets/class_comment_hides_nothing.py",
    "faulty/targets/comment_left_after_repair.py",
    "faulty/targets/file_comment_of_another_time.py",
    "faulty/variants/blockwise_output_map.py",
    "faulty/variants/softmax_over_queries.py",
    "notebooks/across_cells.ipynb",
    "notebooks/versions.ipynb",
]
LAYERS = """\
import math

import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self, width=24, heads=4):
        super().__init__()
        self.h, self.d = heads, width // heads
        self.scale = 1 / math.sqrt(self.d)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, self.d).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.scale  # mha-lint: ignore[MHA201, MHA202, MHA206]
        return self.out((scores.softmax(-2) @ v).transpose(1, 2).reshape(b, t, c))
"""
USERS = """\
from layers import Inner
from torch import nn


class Block(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.attention = Inner(width)

    def forward(self, x):
        return x + self.attention(x)


class Unscaled(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.attention = Inner(width)
        self.attention.scale = 1.0

    def forward(self, x):
        return x + self.attention(x)
"""
BROKEN = """\
from torch import nn


class BrokenAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        raise RuntimeError("no weights here")

    def forward(self, x):
        return (self.q(x) @ self.k(x).transpose(-2, -1)).softmax(-1) @ self.v(x)
"""

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return code, out, err

    return call


def plain(text: str) -> str:
    return re.sub(r'"seconds": [0-9.]+', "", text)


def test_merged_shards_are_the_whole_run(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in COPIED:
        shutil.copy(FIXTURES / name, source)
    texts = {"layers.py": LAYERS, "a_user.py": USERS, "z_broken.py": BROKEN}
    for name, text in texts.items():
        (source / name).write_text(text)
    code, whole, _ = command("check", "src", "--format", "json")
    told = json.loads(whole)
    assert (code, len(told["targets"])) == (2, 14)
    _said_of_two_shards(whole)
    for count in (1, 2, 3, 5):
        names = [f"{count}-{index}.json" for index in range(1, count + 1)]
        for index, name in enumerate(names, start=1):
            options = ["--shard", f"{index}/{count}", "--format", "json", "-q", "-o", name]
            command("check", "src", *options)
            assert json.loads(Path(name).read_text())["shard"] == {"index": index, "count": count}
        code, merged, err = command("merge", *reversed(names))
        assert (code, err) == (2, "")
        assert plain(merged) == plain(whole)
    code, out, err = command("merge", "2-1.json", "2-2.json", "-o", "whole.json")
    assert (code, out) == (2, "")
    assert "errors" in err and "written to whole.json" in err
    assert plain(Path("whole.json").read_text()) == plain(whole)


def _said_of_two_shards(whole: str) -> None:
    """Make sure that there is something that a shard cannot tell alone."""
    targets = {t["target"]: t for t in json.loads(whole)["targets"]}
    block, unscaled = targets["src/a_user.py::Block"], targets["src/a_user.py::Unscaled"]
    inner = targets["src/layers.py::Inner"]
    line = LAYERS[: LAYERS.index("scores =")].count("\n") + 1
    assert block["findings"] == []
    assert block["elsewhere"] == [{"code": "MHA204", "path": "src/layers.py", "line": line + 1}]
    hidden = {(f["code"], f["line"]) for f in unscaled["findings"] if f["suppressed"]}
    assert hidden == {("MHA201", line)}
    assert [f["code"] for f in inner["findings"]] == ["MHA002", "MHA204"]
    assert "suppresses MHA202, MHA206, of which" in inner["findings"][0]["message"]


REPORT = {
    "version": 1,
    "tool": {"name": "mha-lint", "version": "0.1.0", "torch": "2.13.0"},
    "targets": [],
    "crashes": [],
    "summary": {"targets": 0, "checked": 0, "sites": 0, "findings": 0, "seconds": 0.5},
}
WARNED = {
    "target": "a.py::A", "path": "a.py", "class": "A", "line": 1, "status": "undecided",
    "reason": None, "hint": None, "seconds": 0.25, "sites": [],
    "findings": [
        {
            "code": "MHA201", "rule": "missing-scale", "severity": "warning", "message": "No scale.",
            "path": "a.py", "line": 3, "column": 5, "end_line": 3, "end_column": 9, "cell": None,
            "site": None, "branch": None, "fingerprint": "ab", "evidence": ["seen"],
            "confirmed_by": None, "suppressed": False, "fix": None, "help": "",
        }
    ],
    "undecided": [{"code": "MHA103", "site": None, "why": "no other size"}],
    "contract": [], "crosscheck": [],
}  # fmt: skip


@pytest.fixture
def warned(tmp_path: Path) -> str:
    summary = {"targets": 1, "checked": 1, "sites": 0, "findings": 1, "seconds": 0.5}
    text = json.dumps({**REPORT, "targets": [WARNED], "summary": summary})
    (tmp_path / "warned.json").write_text(text)
    return "warned.json"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 1),
        (("--fail-on", "error"), 0),
        (("--exit-zero",), 0),
        (("--strict", "--exit-zero"), 2),
    ],
)
def test_the_exit_code_is_that_of_check(
    options: tuple[str, ...], code: int, warned: str, command: Command
) -> None:
    assert command("merge", warned, *options)[0] == code


def test_what_counts_may_be_configured(warned: str, command: Command, tmp_path: Path) -> None:
    text = '[tool.mha-lint]\nfail-on = "error"\nformat = "concise"\noutput = "gone/report.txt"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    code, out, _ = command("merge", warned)
    assert (code, out[0]) == (0, "{")
    assert command("merge", warned, "--isolated")[0] == 1


def test_other_formats(warned: str, command: Command) -> None:
    _, out, _ = command("merge", warned, warned, "--format", "concise")
    assert out.splitlines()[0] == "a.py:3:5: MHA201 No scale."
    _, out, _ = command("merge", warned, "--format", "text")
    assert "warning[MHA201] missing-scale" in out
    assert "MHA103   a.py::A, whole module" in out


def test_an_interrupted_part_is_told_and_counts_by_what_it_left(
    warned: str, command: Command, tmp_path: Path
) -> None:
    document = json.loads((tmp_path / warned).read_text())
    (tmp_path / warned).write_text(json.dumps(document | {"interrupted": True}))
    code, out, _ = command("merge", warned)
    assert (code, json.loads(out)["interrupted"]) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "b.json: is empty"),
        ('{"version": 1, "tool"', "b.json: is no JSON"),
        (json.dumps({**REPORT, "version": 7}), "b.json: is of format version 7"),
        (json.dumps({**REPORT, "shard": {"index": 1, "count": 2}}), "shard 2 of 2 missing"),
        (None, "b.json: cannot be read (No such file or directory)"),
    ],
)
def test_what_cannot_be_merged_is_one_line(
    text: str | None, said: str, command: Command, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "b.json").write_text(text)
    code, out, err = command("merge", "b.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mha-lint: {said}")


def test_a_place_that_cannot_be_written_is_told(warned: str, command: Command) -> None:
    code, _, err = command("merge", warned, "-o", "gone/report.json")
    assert code == 2
    assert "the folder gone does not exist" in err
