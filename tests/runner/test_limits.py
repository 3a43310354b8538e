"""What a worker takes on itself: limits that hold, and places of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mha_lint.runner.limits import homes, tasks_of_user

ROOT = Path(__file__).resolve().parents[2]


def told(code: str) -> Any:
    source = "import json, os, resource as r\nfrom mha_lint.runner.jobs import Limits\n"
    source += "from mha_lint.runner.limits import addresses, cores, limit_resources\n"
    done = subprocess.run(
        [sys.executable, "-c", source + textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_places_lie_below_the_folder(tmp_path: Path) -> None:
    found = homes(tmp_path)
    assert found["HOME"] == str(tmp_path)
    assert found["TMPDIR"] == str(tmp_path / "tmp")
    assert found["XDG_CACHE_HOME"] == str(tmp_path / ".cache")
    assert all(Path(place).is_relative_to(tmp_path) for place in found.values())


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_limits_are_set_and_cannot_be_raised() -> None:
    found = told("""
        held = addresses(r)
        limit_resources(Limits(memory=1 << 30, file_size=1 << 20), 7.0, tasks=3, memory=True)
        soft, hard = r.getrlimit(r.RLIMIT_AS)
        print(json.dumps([
            soft == hard, abs(soft - held - (1 << 30)) < 1 << 24,
            r.getrlimit(r.RLIMIT_FSIZE), r.getrlimit(r.RLIMIT_CORE),
            r.getrlimit(r.RLIMIT_CPU)[0] - 7 * min(cores(), 8), r.getrlimit(r.RLIMIT_CPU)[1]
            - r.getrlimit(r.RLIMIT_CPU)[0],
        ]))
    """)
    assert found == [True, True, [1 << 20, 1 << 20], [0, 0], 10, 5]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_stricter_limit_stays() -> None:
    assert told("""
        r.setrlimit(r.RLIMIT_FSIZE, (4096, 8192))
        limit_resources(Limits(), 7.0, tasks=3, memory=False)
        print(json.dumps([r.getrlimit(r.RLIMIT_FSIZE), r.getrlimit(r.RLIMIT_AS)[0] == -1]))
    """) == [[4096, 4096], True]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_memory_beyond_the_limit_is_refused() -> None:
    assert (
        told("""
        limit_resources(Limits(memory=64 << 20), 7.0, tasks=3, memory=True)
        try:
            bytearray(128 << 20)
        except MemoryError:
            print(json.dumps("refused"))
    """)
        == "refused"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_tasks_of_the_user_are_counted() -> None:
    assert tasks_of_user() >= len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no Path needed
