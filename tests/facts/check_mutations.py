"""Print whether the tests notice when a fact is no longer measured.

Run by hand: ``python tests/facts/check_mutations.py [FACT ...]``. For each fact its function is
replaced by one that returns what a right plain module gives; at least one test of tests/facts,
tests/engine or of the fixtures must then fail. Exits 1 if none does.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.chdir(ROOT)

from mha_lint.facts import families, subject  # noqa: E402  # needs the line above
from tests.facts.conftest import BUILD, CALL, HEADER, PLAIN, measure_file  # noqa: E402

FACTS = {
    "measure_dims": "test_heads",
    "measure_scale": "test_scale",
    "measure_normaliser": "test_normaliser",
    "measure_split": "test_layout",
    "measure_merge": "test_layout",
    "measure_roles": "test_roles",
    "measure_output": "test_output",
    "measure_stacked": "test_roles",
    "measure_overwritten": "test_roles",
    "dropout_uses": "test_usage",
    "all_dropouts": "test_usage",
    "measure_batch": "test_batch",
    "unused_inputs": "test_usage",
    "unused_modules": "test_usage",
    "measure_truncation": "test_truncation",
    "size_failures": "test_sizes",
    "ignored_head_count": "test_sizes",
    "branch_scales": "test_branches",
    "branch_masks": "test_branches",
    "branches_of": "test_branches",
    "is_deterministic": "test_usage",
    "second_size": "test_scale",
    "_mask": "test_subject",
    "site_spans": "test_subject",
    "measure_masking": "masks/test_masking",
    "measure_mask_fit": "masks/test_fit",
    "measure_rotary": "positions/test_rotary",
    "measure_bias": "positions/test_bias",
    "measure_groups": "test_groups",
    "measure_pairing": "test_key_values",
    "measure_stability": "test_stability",
    "measure_returned": "test_returned",
    "measure_rotation_loss": "test_rotation_loss",
    "with_directions": "causal/test_directions",
    "ignored_masks": "masks/test_ignored",
    "measure_padding": "masks/test_padding",
    "measure_absolute": "positions/test_absolute",
    "measure_causality": "test_causality",
    "measure_cache": "test_cache",
    "measure_state": "test_cache",
    "training_dropout": "test_training",
    "measure_learning": "test_learning",
}
"""Each function that measures, and the file of tests that should notice first."""
TESTS = ("tests/facts", "tests/engine")
FIXTURES = "tests/fixtures/test_fixtures.py"

Function = Callable[..., Any]


@contextlib.contextmanager
def replaced(old: Function, new: Function) -> Iterator[None]:
    """Put `new` wherever a module of mha_lint has `old`."""
    places = [
        (module, name)
        for key, module in list(sys.modules.items())
        if key.startswith("mha_lint")
        for name, value in list(vars(module).items())
        if value is old
    ]
    for module, name in places:
        setattr(module, name, new)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, old)


def measuring(name: str) -> Function:
    """Return the function called `name` as it is used."""
    found: Function = getattr(subject, name, None) or getattr(families, name)
    return found


def constant_of(name: str) -> Function:
    """Return a function that answers as `name` does on the right plain module.

    An operand's name ("q") is the only argument that it heeds, so a wrong k still gets what a right
    k would get. What is one item for each site is repeated for as many sites as there are.
    """
    original = measuring(name)
    answers: dict[tuple[str, ...], Any] = {}

    def remember(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        answers.setdefault(tuple(a for a in args if isinstance(a, str)), answer)
        return answer

    with tempfile.TemporaryDirectory() as folder, replaced(original, remember):
        file = Path(folder, "attention.py")
        file.write_text(HEADER + PLAIN)
        assert measure_file(file, "MHA", BUILD, CALL).facts.sites

    def constant(*args: Any, **_: Any) -> Any:
        if name in ("branch_scales", "branch_masks"):
            return [() for _ in args[1].sites]
        if name == "second_size":
            return None
        if name == "with_directions":
            return args[3]  # the facts as they were
        texts = tuple(a for a in args if isinstance(a, str))
        return answers.get(texts, next(iter(answers.values())))

    return constant


class Counting:
    """A plugin that remembers what failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one test."""
        if report.failed:
            self.failed.append(report.nodeid)
        self.passed += report.passed and report.when == "call"


def run_tests(*arguments: str) -> Counting:
    """Run tests in this process, in the order of the files."""
    counting = Counting()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(
            ["-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", *arguments], [counting]
        )
    return counting


def main(names: list[str]) -> int:
    """Replace each of `names`, print a table, and return 1 if nothing notices one."""
    plain = run_tests(*TESTS)
    sys.stdout.write(f"nothing replaced: {plain.passed} tests pass, {len(plain.failed)} fail\n")
    skipped = [part for test in plain.failed for part in ("--deselect", test)]
    unnoticed = 0
    for name in names or FACTS:
        start = time.perf_counter()
        with replaced(measuring(name), constant_of(name)):
            found = run_tests("-x", *skipped, f"tests/facts/{FACTS[name]}.py")
            for more in (FIXTURES, *TESTS):
                found = found if found.failed else run_tests("-x", *skipped, more)
        unnoticed += not found.failed
        verdict = found.failed[0].removeprefix("tests/") if found.failed else "NOT NOTICED"
        seconds = time.perf_counter() - start
        sys.stdout.write(f"{name:20}{seconds:6.1f} s  {found.passed:4} passed, then {verdict}\n")
        sys.stdout.flush()
    return int(bool(unnoticed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
