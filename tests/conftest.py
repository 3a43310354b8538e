"""How the tests are shared out: the files that take longest are begun first, so that all end together.

A file's tests run in one process, as they share a run over many modules (pyproject.toml). What is
compiled is kept, as users have it: most of what a short command does would else be compiling.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")  # there is a process to each core already

LONGEST = (
    "fixtures/test_fixtures.py",
    "acceptance/test_transformers.py",
    "cli/test_run.py",
    "runner/test_remote.py",
    "runner/test_hostile.py",
    "acceptance/test_rewriting.py",
    "fuzz/test_parsers.py",
    "acceptance/test_half_types.py",
    "cli/test_end_to_end.py",
    "test_pytest_plugin.py",
    "engine/test_precision.py",
    "runner/test_pool.py",
    "rules/test_examples.py",
)
"""Files that take more than some ten seconds, the longest first."""


def pytest_configure(config: pytest.Config) -> None:
    # xdist would hand out the files with the most tests first, and those have short ones.
    config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first and those with few tests last; the rest stays shuffled."""
    names = {item: item.nodeid.split("::", 1)[0] for item in items}
    sizes = Counter(names.values())
    ranks = {f"tests/{name}": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda i: (ranks.get(names[i], len(ranks)), -sizes[names[i]]))


def pytest_collection_finish() -> None:
    # Thousands of tests stay to the end: the garbage collector need not look through them.
    gc.collect()
    gc.freeze()
