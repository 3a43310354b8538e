"""Rows of the table that ``ratios.py`` prints, for what grows: the recorder, a 405B config, layers, lengths.

Run by hand: ``python tests/bench/large.py [ROUNDS]``. Seconds of layers and lengths are those of the
processor, so that a busy machine does not bend the fitted exponents.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.ratios import llama, paired  # noqa: E402  # behind the path

Row = tuple[str, str, str, str]

HEAD = """\
import math

import torch
from torch import nn
"""
LAYER = """

class {name}(nn.Module):
    def __init__(self, d_model=24, num_heads={heads}, head_dim={width}):
        super().__init__()
        self.h, self.d_k = num_heads, head_dim
        self.q_proj = nn.Linear(d_model, num_heads * head_dim)
        self.k_proj = nn.Linear(d_model, num_heads * head_dim)
        self.v_proj = nn.Linear(d_model, num_heads * head_dim)
        self.out_proj = nn.Linear(num_heads * head_dim, d_model)

    def split(self, x):
        return x.view(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
"""
MODEL = """

class Model(nn.Module):
    def __init__(self, d_model=24):
        super().__init__()
        self.layers = nn.ModuleList([{layers}])
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in self.layers])

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x))
        return x
"""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_attention_heads": 128,
    "num_hidden_layers": 126,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
"""Llama 3.1 405B."""

FORWARD = """\
import json, sys, time
import torch
from transformers import AutoConfig, LlamaForCausalLM
from torch._subclasses.fake_tensor import FakeTensorMode
config = AutoConfig.for_model(**json.load(open(sys.argv[1])))
start = time.perf_counter()
with FakeTensorMode():
    model = LlamaForCausalLM._from_config(
        config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
print(time.perf_counter() - start)
"""
CHECK = """\
import os, sys, time
os.environ["PYTORCH_JIT"] = "0"
import torch
from transformers import AutoConfig, LlamaForCausalLM
from mha_lint.engine.run import check
from mha_lint.model.settings import Settings
from mha_lint.targets.resolve import parse_target
start = time.perf_counter()
report = check([parse_target(sys.argv[1], cwd="/")], Settings("/"))
assert [s.repeated for s in report.targets[0].sites] == [126], report.targets[0]
print(time.perf_counter() - start)
"""


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'what':<64}{'figure':>12}{'at most':>9}   against")
    for rows in (recorder, whole_405b, layers, sequence):
        for what, figure, limit, against in rows(rounds):
            print(f"{what:<64}{figure:>12}{limit:>9}   {against}", flush=True)


def recorder(rounds: int) -> Iterator[Row]:
    """Yield what recording adds to a forward."""
    forward, observed, recorded = llama()
    plain = "its plain forward"
    what = "a 32-layer Llama's forward on meta"
    yield f"{what}, while recorded", paired(observed, forward, rounds), "1.15", plain
    yield f"{what}, with its graph made", paired(recorded, forward, rounds), "-", plain


def whole_405b(rounds: int) -> Iterator[Row]:
    """Yield what a check of a 405B config costs beside one fake forward of the whole model.

    Both build the model; neither clock holds the imports of torch and transformers.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json")
        file.write_text(json.dumps(CONFIG))
        ours, theirs = clock(CHECK, str(file)), clock(FORWARD, str(file))
        figure = statistics.median(ours() / theirs() for _ in range(rounds))
    yield "check config.json of Llama 3.1 405B", f"{figure:.2f}", "2.00", "building it, one forward"


def clock(code: str, *arguments: str) -> Callable[[], float]:
    """Return a run of `code` in a process of its own, which prints the seconds it counted."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def run() -> float:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment, capture_output=True, check=True, text=True,
        )  # fmt: skip
        return float(done.stdout.split()[-1])

    return run


def layers(rounds: int, sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128)) -> Iterator[Row]:
    """Yield how the time of a check grows with distinct layers, and with repeated ones."""
    rounds = min(rounds, 3)
    with tempfile.TemporaryDirectory() as folder:
        apart = [fastest(checked(folder, n, distinct=True), rounds) for n in sizes]
        alike = [fastest(checked(folder, n, distinct=False), rounds) for n in sizes]
        config = [fastest(checked_config(folder, n), rounds) for n in sizes]
    against = f"1 ... {sizes[-1]} layers, {apart[0]:.2f} ... {apart[-1]:.1f} s"
    yield "exponent in the number of layers, all distinct", fitted(sizes, apart), "1.05", against
    against = f"1 ... {sizes[-1]} layers, {config[0]:.2f} ... {config[-1]:.1f} s"
    what = "exponent in repeated layers of a config"
    yield what, fitted(sizes, config), "0.20", against
    what = "each further layer of a config that repeats it"
    yield what, each(sizes, config), "10 ms", against
    against = f"1 ... {sizes[-1]} layers, {alike[0]:.2f} ... {alike[-1]:.1f} s"
    yield "exponent in repeated layers of a module", fitted(sizes, alike), "0.50", against
    plain = "building and calling it: " + each(sizes, [fastest(called(n), rounds) for n in sizes])
    yield "each further layer of a module that repeats it", each(sizes, alike), "-", plain


def sequence(rounds: int, sizes: Sequence[int] = (16, 32, 64, 128, 256)) -> Iterator[Row]:
    """Yield how the time of a check grows with the length of the sequence."""
    with tempfile.TemporaryDirectory() as folder:
        taken = [
            fastest(checked(folder, 1, distinct=True, length=n), min(rounds, 3)) for n in sizes
        ]
    against = f"{sizes[0]} ... {sizes[-1]} positions, {taken[0]:.2f} ... {taken[-1]:.1f} s"
    yield "exponent in the sequence length", fitted(sizes, taken), "2.00", against


def checked(folder: str, count: int, *, distinct: bool, length: int = 7) -> Callable[[], None]:
    """Return a check of a model of `count` layers, each of its own class and size or all alike."""
    text = HEAD
    if distinct:
        names = [f"Attention{i}" for i in range(count)]
        for i, name in enumerate(names):
            text += LAYER.format(name=name, heads=2 + i % 3, width=4 + i // 3 % 4)
        made = ", ".join(f"{name}()" for name in names)
    else:
        text += LAYER.format(name="Attention", heads=4, width=6)
        made = f"Attention(d_model) for _ in range({count})"
    file = Path(folder, f"model_{count}_{length}_{distinct:d}.py")
    file.write_text(text + MODEL.format(layers=made))
    call = f"torch.randn(3, {length}, 24)"
    return _run(f"{file}::Model", folder, count, build="Model()", call=call)


def called(count: int) -> Callable[[], None]:
    """Return the building of a model of `count` layers that are alike, and one call of it."""
    scope: dict[str, Any] = {}
    text = HEAD + LAYER.format(name="Attention", heads=4, width=6)
    exec(text + MODEL.format(layers=f"Attention(d_model) for _ in range({count})"), scope)

    def run() -> None:
        with scope["torch"].no_grad():
            scope["Model"]()(scope["torch"].randn(3, 7, 24))

    return run


def checked_config(folder: str, count: int) -> Callable[[], None]:
    """Return a check of a config of `count` layers."""
    file = Path(folder, f"layers_{count}.json")
    file.write_text(json.dumps({**CONFIG, "num_hidden_layers": count}))
    return _run(str(file), folder, count)


def _run(
    target: str, folder: str, count: int, build: str | None = None, call: str | None = None
) -> Callable[[], None]:
    from mha_lint.engine.run import check
    from mha_lint.model.settings import Settings
    from mha_lint.model.target import TargetSpec
    from mha_lint.targets.resolve import parse_target

    named = parse_target(target, cwd=folder)
    assert isinstance(named, TargetSpec)
    spec = dataclasses.replace(named, build=build, call=call)

    def run() -> None:
        (report,) = check([spec], Settings(folder, timeout=1000.0)).targets
        found = sum(site.repeated for site in report.sites)
        assert (report.status.value, found) == ("checked", count), report

    return run


def fastest(run: Callable[[], None], rounds: int) -> float:
    """Return the fewest seconds of the processor that `run` takes, once what it imports is there."""
    run()
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def fitted(sizes: Sequence[int], taken: Sequence[float]) -> str:
    """Return the exponent that fits the upper half of `sizes` best."""
    half = len(sizes) // 2
    xs = [math.log(n) for n in sizes[half:]]
    ys = [math.log(t) for t in taken[half:]]
    return f"{statistics.linear_regression(xs, ys).slope:.2f}"


def each(sizes: Sequence[int], taken: Sequence[float]) -> str:
    """Return the milliseconds that each further one takes."""
    return f"{1000 * statistics.linear_regression(sizes, taken).slope:.1f} ms"


if __name__ == "__main__":
    main()
