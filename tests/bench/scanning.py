"""Scan and help, measured in pairs: the rows (b) and (d) of `tests/bench/run.py`.

The scan goes over Python files without attention, taken evenly from the site-packages of this
interpreter, against other tools on the same files and one core. TorchFix and ruff need not be there:
the environment variables TORCHFIX and RUFF name them, or they are found on the PATH.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGE = 3000
"""Files for a tool that reads some thousand a second."""
SMALL = 200
"""Files for one that takes a second for each dozen."""

Row = tuple[str, str, str, str]
"""What, figure, at most (or a least), against what."""


def help_(rounds: int) -> Iterator[Row]:
    """Yield what ``--help`` and the commands without torch take, against an empty program."""
    nothing = _process(sys.executable, "-c", "pass")
    for arguments in (["--help"], ["rules"], ["explain", "MHA204"]):
        ours = _process(sys.executable, "-m", "mha_lint", *arguments)
        ratio = _paired(ours, nothing, rounds)
        yield f"(b) {' '.join(arguments)}", f"{ratio:.1f}", "-", "python -c pass"


def scan(rounds: int) -> Iterator[Row]:
    """Yield files per second, and how many times those of the other tools."""
    with tempfile.TemporaryDirectory() as folder:
        files = without_attention(LARGE)
        large = _copied(files, Path(folder, "large"))
        small = _copied(files[:: len(files) // SMALL], Path(folder, "small"))
        ours = [_process(*_check(str(tree))) for tree in (large, small)]
        taken = statistics.median(_seconds(ours[0]) for _ in range(max(rounds, 2)))
        yield (
            f"(d) files scanned per second, {len(files)} of them",
            f"{len(files) / taken:.0f}",
            "-",
            "-",
        )
        ruff = _tool("RUFF", "ruff")
        if ruff is None:
            yield (
                "(d) files per second, times those of ruff",
                "skipped",
                "-",
                "ruff is not installed",
            )
        else:
            theirs = _process(ruff, "check", "--isolated", "--no-cache", "--quiet", str(large))
            ratio = _paired(theirs, ours[0], rounds)
            yield "(d) files per second, times those of ruff", f"{ratio:.2f}", "-", "ruff check"
        torchfix = _tool("TORCHFIX", "torchfix")
        if torchfix is None:
            yield "(d) times those of TorchFix", "skipped", ">= 10", "TorchFix is not installed"
        else:
            theirs = _process(torchfix, "--jobs", "1", str(small))
            ratio = _paired(theirs, ours[1], min(rounds, 3))
            count = len(list(small.rglob("*.py")))
            yield (
                f"(d) times those of TorchFix, {count} files",
                f"{ratio:.0f}",
                ">= 10",
                "torchfix -j 1",
            )


def without_attention(count: int) -> list[Path]:
    """Return `count` files of site-packages that hold nothing to check, evenly spread."""
    sys.path.insert(0, str(ROOT))
    from mha_lint.targets.project import Project
    from mha_lint.targets.resolve import python_files

    project = Project()
    root = sysconfig.get_paths()["purelib"]
    files = [f for f in python_files(root) if f.suffix == ".py" and not project.may_hold(str(f))]
    step = max(len(files) / count, 1.0)
    return [files[int(place * step)] for place in range(min(count, len(files)))]


def _check(tree: str) -> list[str]:
    return [sys.executable, "-m", "mha_lint", "check", "--isolated", "--quiet", tree]


def _copied(files: list[Path], folder: Path) -> Path:
    root = Path(sysconfig.get_paths()["purelib"])
    for file in files:
        copy = folder / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return folder


def _tool(variable: str, name: str) -> str | None:
    return os.environ.get(variable) or shutil.which(name)


def _process(*command: str) -> Callable[[], None]:
    """Return a run of `command` on one core, as far as it can be held to one."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT) if command[0] == sys.executable else "",
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
    }

    def run() -> None:
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode > 1:
            raise RuntimeError(f"{command}: exit {done.returncode}\n{done.stderr.decode()}")

    return run


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Hold this process, and those that it starts, to one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _paired(one: Callable[[], None], other: Callable[[], None], rounds: int) -> float:
    """Return the median over `rounds` of how many times as long `one` takes."""
    _seconds(other)
    return statistics.median(_seconds(one) / _seconds(other) for _ in range(rounds))


def _seconds(run: Callable[[], None]) -> float:
    with _one_core():
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for rows in (help_, scan):
        for what, figure, limit, against in rows(rounds):
            print(f"{what:<52}{figure:>8}{limit:>9}   {against}")


if __name__ == "__main__":
    main()
