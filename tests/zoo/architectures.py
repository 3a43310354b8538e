"""Build and run a small model of every architecture that transformers knows, each in a process.

    python tests/zoo/architectures.py --jobs 2 --out /tmp/architectures.jsonl

One line of JSON per architecture is added to ``--out``; those that are there are not tried again
(``--again``: failed ones are). The table at the end counts how far they came.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import multiprocessing
import multiprocessing.connection
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[str], dict[str, Any]]
"""Tries one model type and tells how far it came."""
MEMORY = 8 << 30
SECONDS = 60
NEEDED = (
    "torch._dynamo",
    "torch._subclasses.fake_tensor",
    "transformers.masking_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.vit.modeling_vit",
    "mha_lint.targets.pretrained",
)


def one(model_type: str, variant: int) -> dict[str, Any]:
    """Shrink, build and call one architecture in this process."""
    import warnings

    import torch
    import transformers
    from transformers import CONFIG_MAPPING

    from mha_lint.targets.pretrained import CannotShrinkError, model_class, shrunk

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    row: dict[str, Any] = {"model_type": model_type, "stage": "default config"}
    start = time.monotonic()
    try:
        config = CONFIG_MAPPING[model_type]()
        row["stage"] = "class"
        row["class"] = model_class(config).__name__
        row["import"] = round(time.monotonic() - start, 2)
        small = shrunk(config, variant=variant)
        row |= {"stage": "ran", "notes": list(small.notes[1:]), "inputs": sorted(small.kwargs)}
        row["parameters"] = sum(p.numel() for p in small.model.parameters())
    except CannotShrinkError as error:
        row |= {"stage": error.stage, "error": f"{type(error.error).__name__}: {error.error}"}
        if error.stage == "build":
            row["stage"] = unbuildable(config, error.error)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
    row["error"] = " ".join(row.get("error", "").split())[:400]
    row["seconds"] = round(time.monotonic() - start, 2)
    return row


def unbuildable(config: Any, error: Exception) -> str:
    """Tell whether a package is missing, or the default config itself cannot be built."""
    from mha_lint.targets.pretrained import build

    if isinstance(error, ImportError):
        return "package"
    try:
        build(config, device="meta")
    except Exception:
        return "default"
    return "build"


def child(model_type: str, work: Work, out: Any) -> None:
    """Run one architecture in a forked process, with a limit on memory, and send its row."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out.send(work(model_type))
    out.close()


def in_processes(names: list[str], jobs: int, work: Work) -> Iterator[dict[str, Any]]:
    """Yield a row for each name: `jobs` processes at once, each with a limit on its time.

    They are forked from this one, which has imported what all of them need.
    """
    fork = multiprocessing.get_context("fork")
    waiting = list(reversed(names))
    running: dict[str, tuple[Any, Any, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            here, there = fork.Pipe(duplex=False)
            process = fork.Process(target=child, args=(name, work, there), daemon=True)
            process.start()
            there.close()
            running[name] = (process, here, time.monotonic())
        multiprocessing.connection.wait([p for _, p, _ in running.values()], timeout=0.5)
        for name, (process, here, start) in list(running.items()):
            wall = round(time.monotonic() - start, 2)
            late = wall > SECONDS
            if not (here.poll() or late):
                continue
            row = {"model_type": name, "stage": "time", "error": "time", "seconds": wall}
            if not late:
                try:
                    row = here.recv() | {"wall": wall}
                except EOFError:
                    process.join(2)
                    row |= {"stage": "died", "error": f"exit code {process.exitcode}"}
            process.kill()
            process.join()
            del running[name]
            yield row


def preload() -> None:
    """Import what every architecture needs, once."""
    import torch

    for name in NEEDED:
        importlib.import_module(name)
    torch.set_num_threads(1)


def table(rows: list[dict[str, Any]]) -> None:
    """Print how far the architectures came, and why some did not run."""
    stages = collections.Counter(row["stage"] for row in rows)
    print(f"tried {len(rows)}: " + ", ".join(f"{n} {stage}" for stage, n in stages.most_common()))
    seconds = sorted(row.get("wall", row["seconds"]) for row in rows)
    if seconds:
        print(f"seconds: {sum(seconds):.0f} in all, median {seconds[len(seconds) // 2]}")
    undone = [row for row in rows if row.get("notes")]
    print(f"with something left as it was: {len(undone)}")
    for row in sorted(rows, key=lambda r: (r["stage"], r["model_type"])):
        if row["stage"] != "ran":
            print(f"  {row['stage']:15} {row['model_type']:32} {row['error'][:150]}")


def main() -> None:
    """Run what is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="comma-separated model types")
    parser.add_argument("--out", type=Path, default=Path("architectures.jsonl"))
    parser.add_argument("--again", action="store_true", help="try failed ones again")
    options = parser.parse_args()
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    names = options.only.split(",") if options.only else list(MODEL_MAPPING_NAMES)
    rows: dict[str, dict[str, Any]] = {}
    if options.out.exists():
        for line in options.out.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows[row["model_type"]] = row
    left = [
        n
        for n in names
        if n not in rows or options.only or (options.again and rows[n]["stage"] != "ran")
    ]
    preload()
    with options.out.open("a", encoding="utf-8") as out:
        for row in in_processes(left, options.jobs, partial(one, variant=options.variant)):
            rows[row["model_type"]] = row
            out.write(json.dumps(row) + "\n")
            out.flush()
    table([rows[n] for n in names if n in rows])


if __name__ == "__main__":
    main()
