"""The whole program as a process, on small files: what a user, a script and a CI job rely on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mha_lint.report.json_format import SCHEMA

ROOT = Path(__file__).resolve().parents[2]

IMPORTS = """\
import math

import torch
from torch import nn

print("noise at import")


"""
ATTENTION = """\
class Attention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def split(self, x):
        return x.view(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


"""
FEED = """\
class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return self.up(x).relu()
"""
GOOD = IMPORTS + ATTENTION + FEED
FAULTY = GOOD.replace("dim=-1)", "dim=-2)")
FAULTY_LINE = 23


Program = Callable[..., subprocess.CompletedProcess[str]]


def environment(**variables: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    return {**plain, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}


@pytest.fixture
def mha_lint(tmp_path: Path) -> Program:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(FAULTY)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "feed.py").write_text(IMPORTS + FEED)

    def program(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mha_lint", *arguments],
            cwd=tmp_path,
            env=environment(**variables),
            capture_output=True,
            text=True,
            check=False,
        )

    return program


def report(done: subprocess.CompletedProcess[str]) -> Any:
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))
    return document


def test_a_fault_is_found_on_its_line(mha_lint: Program) -> None:
    done = mha_lint("check", "bad.py::Attention", "--format", "json")
    (target,) = report(done)["targets"]
    (finding,) = target["findings"]
    assert (finding["code"], finding["path"], finding["line"]) == ("MHA204", "bad.py", FAULTY_LINE)
    column = FAULTY.splitlines()[FAULTY_LINE - 1].index("torch.softmax") + 1
    assert finding["column"] == column
    assert (done.returncode, done.stderr) == (1, "")


def test_right_code_is_clean(mha_lint: Program) -> None:
    done = mha_lint("check", "good.py::Attention")
    assert done.returncode == 0, done.stdout
    assert "   ok\n" in done.stdout
    assert "no findings in 1 module (1 attention site)" in done.stdout
    assert "noise" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--dtype", "bfloat16"],
        ["--build", "Attention(24, 4).bfloat16()", "--call", "torch.randn(2, 5, 24).bfloat16()"],
    ],
)
def test_half_precision_has_its_own_tolerance(options: list[str], mha_lint: Program) -> None:
    done = mha_lint("check", "good.py::Attention", "--format", "json", *options)
    ((row,),) = [target["crosscheck"] for target in report(done)["targets"]]
    assert (row["verdict"], row["dtype"], row["device"]) == ("match", "bfloat16", "cpu")
    assert 1e-4 < row["max_abs_error"] <= row["tolerance"] < 1e-2
    assert done.returncode == 0


def test_the_same_bytes_twice(mha_lint: Program) -> None:
    one, two = (
        re.sub(r'"seconds": [0-9.]+', "", mha_lint("check", "bad.py", "--format", "json").stdout)
        for _ in range(2)
    )
    assert one == two


def test_a_folder_without_attention_is_0_with_a_note(mha_lint: Program) -> None:
    done = mha_lint("check", "plain")
    assert done.returncode == 0, done.stdout
    assert "note: no attention" in done.stdout


def test_a_named_class_without_attention_is_2(mha_lint: Program) -> None:
    done = mha_lint("check", "good.py::Feed", "--format", "json")
    assert done.returncode == 2
    assert report(done)["targets"][0]["status"] == "failed"


def test_what_is_missing_is_2_and_does_not_hide_the_rest(mha_lint: Program) -> None:
    done = mha_lint("check", "gone.py", "bad.py::Attention", "--format", "json")
    assert done.returncode == 2
    shown = report(done)
    assert shown["targets"][0]["status"] == "failed"
    assert shown["summary"]["findings"] == 1


def test_an_unknown_rule_is_one_line(mha_lint: Program) -> None:
    done = mha_lint("check", "good.py", "--select", "MHA299")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mha-lint: select: no rule 'MHA299'; there are MHA201")
    assert done.stderr.count("\n") == 1


def test_inspect_shows_sizes_and_cost(mha_lint: Program) -> None:
    arguments = ["--build", "Attention(64, 8)", "--call", "torch.randn(2, 10, 64)"]
    done = mha_lint("inspect", "bad.py::Attention", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    (site,) = json.loads(done.stdout)["targets"][0]["sites"]
    sizes = ("d_model", "num_heads", "num_kv_heads", "head_dim", "v_dim")
    assert [site[name] for name in sizes] == [64, 8, 8, 8, 8]
    assert site["cost"]["parameters"] == 4 * 64 * 64
    assert site["cost"]["projections"] == 3 * 2 * 2 * 10 * 64 * 64
    assert site["cost"]["scores"] == site["cost"]["context"] == 2 * 2 * 8 * 10 * 10 * 8
    assert site["cost"]["total"] == site["cost"]["single_head_total"]


def test_an_ascii_terminal_gets_ascii(mha_lint: Program) -> None:
    done = mha_lint("check", "bad.py::Attention", PYTHONIOENCODING="ascii")
    assert done.returncode == 1, done.stderr
    assert "softmax over queries x" in done.stdout


@pytest.mark.parametrize(
    ("isolation", "out", "err"),
    [
        ([], "interrupted: 0 of 1 targets were checked", ""),
        (["--no-isolation"], "", "interrupted\n"),
    ],
)
def test_ctrl_c_while_user_code_runs_is_130(
    mha_lint: Program, tmp_path: Path, isolation: list[str], out: str, err: str
) -> None:
    slow = """super().__init__()
        while True:
            try:
                pathlib.Path("begun").touch()
                time.sleep(60)
            except BaseException:
                pass
    """
    text = "import pathlib\nimport time\n" + GOOD.replace("super().__init__()", slow, 1)
    (tmp_path / "slow.py").write_text(text)
    # A shell's background job, as which a test may run, inherits that Ctrl-C is ignored.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"sys.argv[1:] = ['check', 'slow.py', *{isolation}];"
        "from mha_lint.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 30
            while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=15)
        finally:
            process.kill()
    assert (process.returncode, said[1]) == (130, err)
    assert out in said[0]


def test_user_code_cannot_end_the_run(mha_lint: Program, tmp_path: Path) -> None:
    for name, way in (("a", "os._exit(0)"), ("b", "sys.exit(0)"), ("c", "raise KeyboardInterrupt")):
        text = "import os\nimport sys\n" + GOOD.replace("super().__init__()", way, 1)
        (tmp_path / f"{name}.py").write_text(text)
    names = [f"{name}.py::Attention" for name in "abc"]
    done = mha_lint("check", *names, "good.py::Attention", "--format", "json")
    assert done.returncode == 2
    statuses = [t["status"] for t in report(done)["targets"]]
    assert statuses[:3] == ["failed"] * 3
    assert statuses[3] != "failed"


def test_without_numpy_nothing_is_said(mha_lint: Program, tmp_path: Path) -> None:
    """Put a module in numpy's place that cannot be imported, as where it is not installed."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "numpy.py").write_text("raise ModuleNotFoundError('numpy')\n")
    path = os.pathsep.join([str(tmp_path / "without"), str(ROOT)])
    done = mha_lint("check", "bad.py::Attention", PYTHONPATH=path, PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (1, "")
