"""``pytest --mha-lint`` over a sample repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODEL = """\
import math

from torch import nn


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.h, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(d)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


def attend(q, k, v):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return s.softmax(-2) @ v
"""
TESTS = """\
import pytest
import torch

from model import Attention, attend


@pytest.fixture
def attention():
    torch.manual_seed(0)
    return Attention(32, 4)


def test_shape(attention):
    x = torch.randn(2, 7, 32)
    assert attention(x).shape == x.shape
    print("seen", torch.rand(1).item())


def test_function():
    q = torch.randn(2, 4, 7, 8)
    assert attend(q, q + 1, q).shape == q.shape


def test_by_hand():
    q = torch.randn(2, 7, 8)
    assert ((q @ q.mT).softmax(-1) @ q).shape == q.shape
"""
SCALE = "model.py:15:13: MHA202"
SOFTMAX = "model.py:21:12: MHA204"


def pytest_in(
    folder: Path, *arguments: str, tests: str = TESTS
) -> subprocess.CompletedProcess[str]:
    (folder / "model.py").write_text(MODEL)
    (folder / "test_model.py").write_text(tests)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    plugin = ("-p", "mha_lint.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-q", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def errors(text: str) -> list[tuple[str, str]]:
    """Return code and place of each finding in a section of text."""
    rows = [row.split() for row in text.splitlines() if row.startswith("error[")]
    return [(row[0][6:-1], row[-1]) for row in rows]


def test_findings_stand_in_a_section_and_fail_nothing(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--mha-lint")
    assert done.returncode == 0
    _, _, section = done.stdout.partition(" mha-lint ===")
    assert errors(section) == [("MHA202", "model.py:15:13"), ("MHA204", "model.py:21:12")]
    assert "test_by_hand" not in section
    assert "3 passed" in done.stdout


def test_strict_fails_the_session_and_names_the_tests(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--mha-lint-strict")
    assert done.returncode == 1
    rows = [row for row in done.stdout.splitlines() if row.startswith("FAILED")]
    assert rows == [
        "FAILED model.py:15:13 MHA202 wrong-scale (test_model.py::test_shape)",
        "FAILED model.py:21:12 MHA204 wrong-softmax-axis (test_model.py::test_function)",
    ]


def test_strict_is_content_without_findings(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--mha-lint-strict", "--mha-lint-ignore", "MHA2,MHA9")
    assert done.returncode == 0
    assert errors(done.stdout) == []


def test_a_test_that_fails_by_itself_stays_as_it_is(tmp_path: Path) -> None:
    wrong = f"{TESTS}\n\ndef test_wrong(attention):\n    assert attention(torch.ones(1, 3, 32)) is None\n"
    done = pytest_in(tmp_path, "--mha-lint", "--mha-lint-select", "MHA202", tests=wrong)
    assert done.returncode == 1
    assert "FAILED test_model.py::test_wrong" in done.stdout
    assert errors(done.stdout) == [("MHA202", "model.py:15:13")]


def test_a_test_sees_what_it_sees_alone(tmp_path: Path) -> None:
    seen = [
        [
            row
            for row in pytest_in(tmp_path, "-s", *options).stdout.splitlines()
            if row.startswith("seen")
        ]
        for options in ([], ["--mha-lint"])
    ]
    assert seen[0] == seen[1] != []


def test_workers_of_xdist_report_to_the_controller(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "-p", "xdist", "-n", "2", "--mha-lint-strict")
    assert done.returncode == 1
    assert errors(done.stdout) == [("MHA202", "model.py:15:13"), ("MHA204", "model.py:21:12")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--mha-lint-select", "MHA999"], "MHA999"),
        (["--mha-lint-expect", "nonsense"], "nonsense"),
    ],
)
def test_a_wrong_option_is_told(tmp_path: Path, options: list[str], told: str) -> None:
    done = pytest_in(tmp_path, "--mha-lint", *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.startswith(f"ERROR: {options[0]}: ")
    assert told in done.stderr


def test_without_the_option_nothing_is_imported(tmp_path: Path) -> None:
    text = (
        "import sys\ndef test_nothing():\n"
        "    ours = {n for n in sys.modules if n.startswith('mha_lint.')}\n"
        "    assert 'torch' not in sys.modules and 'rich' not in sys.modules\n"
        "    assert not any('engine' in n or 'live' in n for n in ours)\n"
    )
    assert pytest_in(tmp_path, "--mha-lint", tests=text).returncode == 0
    done = pytest_in(tmp_path, tests=text)
    assert done.returncode == 0
    assert "mha-lint" not in done.stdout
