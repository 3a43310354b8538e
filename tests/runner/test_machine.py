"""What a container allows goes before what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mha_lint.runner import machine


@pytest.fixture
def machine_of_8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with 8 cores and 64 GiB, and the folder of its container's limits."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16 << 20}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(machine, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "memory.max")
    return tmp_path


def test_without_a_container_all_counts(machine_of_8: Path) -> None:
    assert (machine.cores(), machine.memory()) == (8, 64 << 30)
    assert (machine.usual_jobs(), machine.usual_memory()) == (8, 8 << 30)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("1600000 100000", 8), ("", 8)],
)
def test_the_quota_of_a_container_counts(machine_of_8: Path, quota: str, cores: int) -> None:
    (machine_of_8 / "cpu.max").write_text(quota)
    assert machine.cores() == cores


def test_the_memory_of_a_container_counts(machine_of_8: Path) -> None:
    (machine_of_8 / "memory.max").write_text(f"{4 << 30}\n")
    assert (machine.memory(), machine.usual_memory(), machine.usual_jobs()) == (4 << 30, 2 << 30, 4)
    (machine_of_8 / "memory.max").write_text("max\n")
    assert machine.memory() == 64 << 30
