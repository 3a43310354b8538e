"""Pairs of runs and their ratios, and the rows of ``run.py`` that are asked for less often.

Each figure is the median over rounds of the ratio (where it says ms: of the difference) of two runs
made one right after the other, so that a busy machine slows both alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODULE = """\
import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model=64, num_heads=8):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.view(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
"""

TORCH = ["-c", "import torch"]
LINT = ["-m", "mha_lint"]


def rows(rounds: int) -> Iterator[tuple[str, str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one.py"), Path(folder, "two.py")
        one.write_text(MODULE)
        two.write_text(MODULE.replace("MultiHeadAttention", "SecondAttention"))
        yield (
            "a second target: check one.py two.py",
            added(clocked(str(one), str(two)), clocked(str(one)), rounds),
            "150 ms",
            "check one.py",
        )
    first, further = over_fixtures(rounds)
    yield "a full check of a fixture, the first of a run", first, "300 ms", "behind import torch"
    yield "a full check of each further fixture", further, "150 ms", "the median of them"
    for arguments in (["--help"], ["rules"], ["explain", "MHA204"]):
        yield (
            " ".join(arguments),
            paired(process(*LINT, *arguments), process(*TORCH), rounds),
            "0.25",
            "import torch",
        )
    forward, observed, recorded = llama()
    yield (
        "a 32-layer Llama's forward on meta, while recorded",
        paired(observed, forward, rounds),
        "1.15",
        "its plain forward",
    )
    yield (
        "the same and its graph made, copies and checks",
        paired(recorded, forward, rounds),
        "-",
        "its plain forward",
    )


def process(*arguments: str, cwd: str | None = None) -> Callable[[], None]:
    """Return a run of Python with `arguments`; findings (exit code 1) are no failure of ours."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def run() -> None:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True, check=False
        )
        if done.returncode > 1:
            raise RuntimeError(f"{arguments}: exit {done.returncode}\n{done.stderr.decode()}")

    return run


def llama() -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """Return a forward of a 32-layer Llama without any weights: plain, observed, recorded whole."""
    sys.path.insert(0, str(ROOT))
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from mha_lint.capture import record
    from mha_lint.capture.builder import GraphBuilder
    from mha_lint.capture.calls import CallRecorder
    from mha_lint.capture.frames import FrameWalker
    from mha_lint.capture.known import KnownTensors
    from mha_lint.capture.modes import FunctionMode
    from mha_lint.capture.state import recordable, without_collection

    torch.set_num_threads(1)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=32)).eval()
        tokens = torch.zeros(1, 16, dtype=torch.int64)
        # A mask in its final shape: making one asks for values, and meta tensors have none.
        options = {"attention_mask": torch.zeros(1, 1, 16, 16), "use_cache": False}
    known = KnownTensors(model)
    paths = {id(m): path for path, m in known.modules.items()}

    def forward() -> None:
        with torch.no_grad():
            model(tokens, **options)

    def observed() -> None:
        calls = CallRecorder(GraphBuilder(FrameWalker(paths), known, {}), ())
        with without_collection(), recordable(), FunctionMode(calls):
            model(tokens, **options)

    def recorded() -> None:
        record(model, (tokens,), options, copy=False)

    return forward, observed, recorded


def clocked(*files: str) -> Callable[[], float]:
    """Return a run of ``check`` on `files` that tells the seconds of its own clock.

    That starts behind ``import torch``, whose seconds and whims would hide a few milliseconds.
    """
    arguments = [*LINT, "check", "--isolated", "--exit-zero", "--format", "json", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def run() -> float:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, check=True
        )
        return float(json.loads(done.stdout)["summary"]["seconds"])

    return run


def over_fixtures(rounds: int) -> tuple[str, str]:
    """Return the median seconds of the first target of a run and of each further one.

    Every target is a fixture with its stated build and call, on two threads as a user has them.
    """
    sys.path.insert(0, str(ROOT))
    from tests.fixtures.conftest import fixtures
    from tests.score_fixtures import run

    cases = fixtures()[::4]
    firsts: list[float] = []
    further: list[float] = []
    for turn in range(min(rounds, 3)):
        moved = [*cases[turn * 7 :], *cases[: turn * 7]]
        report, _ = run(moved, "given", f"{sys.executable} -m mha_lint")
        taken = [t["seconds"] for t in report["targets"]]
        firsts.append(taken[0])
        further += taken[1:]
    return (
        f"{1000 * statistics.median(firsts):.0f} ms",
        f"{1000 * statistics.median(further):.0f} ms",
    )


def paired(ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> str:
    """Return the median over `rounds` of the ratio of two runs; one of each warms the caches up."""
    seconds(theirs)
    seconds(ours)
    return f"{statistics.median(seconds(ours) / seconds(theirs) for _ in range(rounds)):.2f}"


def added(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> str:
    """Return the median over `rounds` of how much longer one run takes, in milliseconds."""
    return f"{1000 * statistics.median(ours() - theirs() for _ in range(rounds)):.0f} ms"


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
