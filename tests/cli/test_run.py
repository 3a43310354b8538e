"""``mha-lint run``: the program runs as without us, and what it computes is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import ROOT
from tests.cli.test_completion import completed

GPT = """\
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer("mask", torch.ones(32, 32).tril().view(1, 1, 32, 32))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (y.view(B, T, self.h, C // self.h).transpose(1, 2) for y in (q, k, v))
        att = q @ k.transpose(-2, -1) / math.sqrt(C)
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-2)
        return self.proj((att @ v).transpose(1, 2).reshape(B, T, C))


class GPT(nn.Module):
    def __init__(self, vocabulary=40, d=48, h=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(32, d)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.layers = nn.ModuleList(CausalSelfAttention(d, h) for _ in range(2))
        self.head = nn.Linear(d, vocabulary)

    def forward(self, i):
        x = self.tokens(i) + self.positions(torch.arange(i.shape[1]))
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(int(sys.argv[1])):
    data = torch.randint(0, 40, (4, 14))
    logits = model(data[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
sys.exit(3)
"""
SCALE = GPT.splitlines().index("        att = q @ k.transpose(-2, -1) / math.sqrt(C)") + 1
SOFTMAX = SCALE + 2
HEADER = "import os, sys, threading\nimport torch\nfrom torch import nn\n"
ATTENTION = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        weights = (self.q(x) @ self.k(x).mT / 4).softmax(-2)
        return self.o(weights @ self.v(x))


torch.manual_seed(0)
attention = Attention()
"""
FAULT = HEADER.count("\n") + 8
"""The line of the wrong softmax in `ATTENTION`."""


@dataclass
class Both:
    """A program under python and under ``mha-lint run``: what the latter reports."""

    code: int
    report: dict[str, Any]
    plain: subprocess.CompletedProcess[bytes]
    told: str

    @property
    def found(self) -> list[tuple[str, str, int]]:
        return [
            (f["code"], f["path"], f["line"]) for t in self.report["targets"] for f in t["findings"]
        ]

    @property
    def names(self) -> list[str]:
        return [t["target"] for t in self.report["targets"]]


def begun(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[bytes]:
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return ended(begun(folder, *arguments))


def both(folder: Path, text: str, *arguments: str) -> Both:
    """Run a script in both ways at once and compare all that it says, and its exit code."""
    (folder / "script.py").write_text(text)
    alone = begun(folder, "script.py", *arguments)
    options = ("-q", "--format", "json", "-o", "report.json")
    ours = process(folder, "-m", "mha_lint", "run", *options, "--", "script.py", *arguments)
    plain = ended(alone)
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode
    written = folder / "report.json"
    report = json.loads(written.read_text()) if written.exists() else {"targets": []}
    assert report.get("crashes", []) == []
    return Both(ours.returncode, report, plain, ours.stderr.decode())


def test_a_training_run_ends_as_it_does_alone_and_its_faults_are_found(tmp_path: Path) -> None:
    run = both(tmp_path, GPT, "4")
    assert run.code == 3
    assert run.plain.stdout.count(b"\n") == 4
    assert run.found == [("MHA202", "script.py", SCALE), ("MHA204", "script.py", SOFTMAX)]
    assert run.names == ["script.py::CausalSelfAttention"]
    (site,) = run.report["targets"][0]["sites"]
    assert (site["repeated"], site["num_heads"], site["mask"]) == (2, 4, "causal")


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit('told')", 1),
        ("raise ValueError('wrong') from KeyError('why')", 1),
        ("print('x', end=''); sys.stdout.flush(); os._exit(7)", 7),
        ("raise KeyboardInterrupt", -2),
        ("class Net(nn.Module):\n    def forward(self, x): return x.nothing\nNet()(1)", 1),
        ("sys.excepthook = lambda *_: print('own hook'); raise ValueError", 1),
        (
            "import atexit; atexit.register(print, 'bye')\n"
            "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nsys.exit(0 if pid else 9)",
            0,
        ),
    ],
)
def test_however_a_program_ends(tmp_path: Path, end: str, code: int) -> None:
    run = both(
        tmp_path, f"{HEADER}{ATTENTION}print(attention(torch.randn(2, 5, 16)).shape)\n{end}\n"
    )
    assert run.code == code
    assert run.found == [("MHA204", "script.py", FAULT)]


CALLS = [
    "print(torch.compile(attention, backend='eager')(torch.randn(2, 5, 16)).shape)",
    "print(nn.DataParallel(attention)(torch.randn(2, 5, 16)).shape)",
    "with torch.inference_mode(): print(attention(torch.randn(2, 5, 16)).shape)",
    "with torch.autocast('cpu', torch.bfloat16): print(attention(torch.randn(2, 5, 16)).dtype)",
    "print(attention.double()(torch.randn(1, 5, 16).double()).shape)",
    "attention.register_forward_hook(lambda *_: print('hook')); attention(torch.randn(2, 5, 16))",
    "print(attention(torch.zeros(2, 5, 16)).shape)",
    "threading.Thread(target=lambda: print(attention(torch.randn(2, 5, 16)).shape)).start()",
]
SETTINGS = [
    "torch.set_default_dtype(torch.float64); print(attention.double()(torch.randn(2, 5, 16)).shape)",
    "attention(torch.randn(2, 5, 16)); torch.set_default_device('meta')",
]


@pytest.mark.parametrize("bodies", [CALLS, SETTINGS], ids=["calls", "settings"])
def test_however_a_module_is_called(tmp_path: Path, bodies: list[str]) -> None:
    """Each body calls a class of its own, and all are in one program."""
    text, lines = HEADER, []
    for number, body in enumerate(bodies):
        lines.append(text.count("\n") + 8)
        part = f"{ATTENTION}{body}\n".replace("Attention", f"Attention{number}")
        text += part.replace("attention", f"attention{number}")
    run = both(tmp_path, text)
    assert run.code == 0
    assert run.names == [f"script.py::Attention{number}" for number in range(len(bodies))]
    assert run.found == [("MHA204", "script.py", line) for line in lines]


def test_workers_of_a_loader_and_children_do_not_report(tmp_path: Path) -> None:
    text = f"""{HEADER}import multiprocessing
from torch.utils.data import DataLoader
{ATTENTION}
def child(queue): queue.put(__name__)
if __name__ == "__main__":
    for x in DataLoader(torch.ones(8, 5, 16), batch_size=4, num_workers=1, multiprocessing_context="fork"):
        print(attention(x).sum().item())
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=child, args=(queue,))
    process.start(); print(queue.get()); process.join()
"""
    run = both(tmp_path, text)
    assert run.code == 0
    assert b"__mp_main__" in run.plain.stdout
    assert run.found == [("MHA204", "script.py", FAULT + 2)]


def test_functions_alone(tmp_path: Path) -> None:
    text = """import math, torch
def split(x, h): return x.reshape(*x.shape[:-1], h, -1).transpose(-2, -3)
def attend(params, x, *, heads):
    q, k, v = (split(x @ params[n], heads) for n in ("q", "k", "v"))
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(x.shape[-1])
    return torch.einsum("bhqk,bhkd->bhqd", s.softmax(-1), v).transpose(1, 2).flatten(2) @ params["o"]
plain = lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(1) @ v
def main():
    torch.manual_seed(0)
    params = {n: torch.randn(24, 24) / 5 for n in "qkvo"}
    x = torch.randn(2, 6, 24)
    print(attend(params, x, heads=4).sum().item(), plain(x, x + 1, x).sum().item())
main()
"""
    run = both(tmp_path, text)
    assert run.names == ["script.py::attend", "script.py::<lambda>"]
    assert run.found == [("MHA202", "script.py", 5), ("MHA204", "script.py", 7)]


def test_a_batch_first_that_was_forgotten(tmp_path: Path) -> None:
    text = f"""{HEADER}
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.attention = nn.MultiheadAttention(32, 4)
        self.out = nn.Linear(32, 7)

    def forward(self, tokens):
        x = self.words(tokens)
        y, _ = self.attention(x, x, x)
        return self.out((x + y).mean(1))
torch.manual_seed(0)
print(Classifier().eval()(torch.randint(0, 50, (6, 9))).sum().item())
"""
    run = both(tmp_path, text)
    assert run.names == ["script.py::Classifier"]
    assert [(code, line) for code, _, line in run.found] == [("MHA601", 14)]


def test_attention_in_the_body_of_a_script_is_not_checked(tmp_path: Path) -> None:
    run = both(
        tmp_path, f"{HEADER}x = torch.ones(2, 3, 4)\nprint(((x @ x.mT).softmax(-1) @ x).sum())\n"
    )
    (target,) = run.report["targets"]
    assert (target["target"], target["status"]) == ("script.py", "failed")
    assert target["hint"] == "put it in a function or nn.Module that takes them as arguments"


def test_a_scripted_function_runs_scripted_and_is_looked_into(tmp_path: Path) -> None:
    text = f"""{HEADER}
@torch.jit.script
def normalise(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -2)
{ATTENTION.replace("(self.q(x) @ self.k(x).mT / 4).softmax(-2)", "normalise(self.q(x) @ self.k(x).mT / 4)")}
print(type(normalise).__name__, attention(torch.randn(2, 5, 16)).sum().item())
print(torch.jit.script(attention).code)
"""
    run = both(tmp_path, text)
    assert run.plain.stdout.startswith(b"ScriptFunction")
    assert run.found == [("MHA204", "script.py", 7)]


def test_a_program_without_torch(tmp_path: Path) -> None:
    run = both(
        tmp_path, "import sys\nprint(sys.argv, __name__, sys.path[0])\nsys.exit(4)\n", "-x", "--y"
    )
    assert run.code == 4
    assert run.report == {"targets": []}
    done = process(tmp_path, "-m", "mha_lint", "run", "script.py")
    assert b"did not import torch" in done.stderr


def test_the_report_goes_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{HEADER}{ATTENTION}attention(torch.randn(2, 5, 16))\n")
    done = process(tmp_path, "-m", "mha_lint", "run", "--format", "concise", "--", "script.py")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"script.py:%d:" % FAULT)


@pytest.mark.parametrize(
    ("options", "end", "code"),
    [
        (["--fail-on", "error"], "", 1),
        (["--fail-on", "error", "--ignore", "MHA204"], "", 0),
        (["--fail-on", "error"], "sys.exit(5)", 5),
        (["--strict"], "x = torch.ones(2, 3, 4); (x @ x.mT).softmax(-1) @ x", 2),
    ],
)
def test_exit_codes_of_ours_are_asked_for(
    tmp_path: Path, options: list[str], end: str, code: int
) -> None:
    text = f"{HEADER}{ATTENTION}attention(torch.randn(2, 5, 16))\n{end}\n"
    (tmp_path / "script.py").write_text(text)
    done = process(tmp_path, "-m", "mha_lint", "run", *options, "--", "script.py")
    assert done.returncode == code


def test_a_module_and_an_early_end(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    text = f"""{HEADER}{ATTENTION}
for step in range(100):
    attention(torch.randn(2, 5, 16))
    print(step, __name__, __package__, sys.argv[1:])
"""
    (tmp_path / "package" / "train.py").write_text(text)
    options = ("--stop-after-capture=5", "--format", "concise")
    done = process(tmp_path, "-m", "mha_lint", "run", *options, "-m", "package.train", "--fast")
    assert done.returncode == 0
    rows = done.stdout.decode().splitlines()
    assert rows[0] == "0 __main__ package ['--fast']"
    assert len(rows) == 5
    assert done.stderr.decode().startswith(f"package/train.py:{FAULT}:")


def test_what_cannot_be_run_is_told(tmp_path: Path) -> None:
    done = process(tmp_path, "-m", "mha_lint", "run", "missing.py")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"mha-lint: missing.py: cannot be run (No such file or directory)\n"
    done = process(tmp_path, "-m", "mha_lint", "run", "-m", "missing.module")
    assert done.returncode == 2
    assert done.stderr.startswith(b"mha-lint: -m missing.module:")


def test_completion_of_a_script() -> None:
    assert completed("run", "train") == [("file", "train")]
