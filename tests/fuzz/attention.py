"""Judge random attention modules: no finding on right ones, the right code at the line on faulty ones.

`judged` is the property, `run` the long run by hand.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

import torch
from hypothesis import strategies as st

from mha_lint.engine import check
from mha_lint.model.report import RunReport, Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from tests.fuzz.choices import Choices, simplified
from tests.fuzz.compose import Case, compose
from tests.fuzz.reference import departure

TOLERANCE = 1e-10
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Failure:
    """What was expected of a case, and what came instead."""

    expected: str
    got: str
    detail: str

    @property
    def kind(self) -> tuple[str, str]:
        """Return the pair by which failures are grouped."""
        return self.expected, self.got


cases = st.integers(0, 10**6).map(lambda seed: compose(Choices.random(seed)))
"""Random attention modules, right or with one fault; all draws of a case follow from its seed."""


def generator_error(case: Case) -> str | None:
    """Return why the case is not what its plan says, None if it is: a fault of this generator."""
    fault = case.fault
    if fault is not None and not case.lines:
        return "the fault has no line"
    if fault is not None and "o" not in case.plan.weights:
        return None
    try:
        difference = departure(case)
    except Exception as error:  # any error of a generated module is of interest
        return f"{type(error).__name__}: {error}"
    if fault is None and not difference <= TOLERANCE:
        return f"departs from the reference by {difference}"
    if fault is not None and not fault.silent and difference <= TOLERANCE:
        return "the fault changes nothing"
    return None


def report_of(case: Case, folder: Path) -> RunReport:
    """Return what mha-lint says of the case, which is written to a file in `folder`."""
    torch.set_num_threads(1)
    name = f"case_{next(_NUMBERS)}.py"  # a name of its own: sources are cached by path
    (folder / name).write_text(case.text, encoding="utf-8")
    spec = TargetSpec(
        text=f"{name}::{case.name}", path=name, qualname=case.name,
        build=case.build, call=case.call, expect=case.expect,
    )  # fmt: skip
    return check([spec], Settings(cwd=str(folder)))


def judged(case: Case, folder: Path) -> Failure | None:
    """Return how mha-lint's verdict on the case differs from the truth, None if it does not."""
    report = report_of(case, folder)
    wanted = (
        "nothing" if case.fault is None else f"{case.fault.name}: {' or '.join(case.fault.codes)}"
    )
    if report.crashes:
        crash = report.crashes[0]
        return Failure(wanted, f"crash {crash.error}", crash.traceback)
    (target,) = report.targets
    if target.status not in (Status.CHECKED, Status.UNDECIDED):
        return Failure(wanted, target.status.value, f"{target.reason}\n{target.detail}")
    loud = [f for f in target.findings if f.severity.value in ("error", "warning")]
    detail = "\n".join(f"{f.span.line}: {f.code} {f.severity.value}: {f.message}" for f in loud)
    got = ", ".join(sorted({f.code for f in loud})) or "nothing"
    fault = case.fault
    if fault is None:
        return Failure(wanted, got, detail) if loud else None
    named = [f for f in loud if f.code in fault.codes]
    undecided = "; ".join(f"{u.code} undecided: {u.why}" for u in target.undecided)
    if not named:
        return Failure(wanted, got, f"{detail}\n{undecided}")
    if all(abs(f.span.line - line) > 1 for f in named for line in case.lines):
        return Failure(wanted, f"{got} at another line", detail)
    known = {*fault.codes, *fault.along}
    others = sorted({f.code for f in loud if f.severity.value == "error"} - known)
    return Failure(wanted, f"also {', '.join(others)}", detail) if others else None


def run(minutes: float, out: Path, seed: int | None = None) -> None:
    """Judge random cases for `minutes`; write each kind of failure to `out` and go on."""
    seed = SystemRandom().randrange(10**9) if seed is None else seed
    out.mkdir(parents=True, exist_ok=True)
    kinds: Counter[tuple[str, str]] = Counter()
    counts: Counter[str] = Counter()
    print(f"first seed {seed}, failures go to {out}", flush=True)
    end = time.monotonic() + 60 * minutes
    first = seed
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            failure = _one(seed, Path(folder), counts)
            if failure is not None:
                kinds[failure.kind] += 1
                if kinds[failure.kind] <= 3:
                    _keep(seed, failure, Path(folder), out)
            seed += 1
    print(f"{seed - first} cases, seeds {first} to {seed - 1}, {sum(kinds.values())} failures")
    for name, count in sorted(counts.items()):
        print(f"  {count:6} {name}")
    for (expected, got), count in kinds.most_common():
        print(f"FAILED {count} times: expected {expected}; got {got}")


def _one(seed: int, folder: Path, counts: Counter[str]) -> Failure | None:
    case = compose(Choices.random(seed))
    counts["right" if case.fault is None else case.fault.name] += 1
    error = generator_error(case)
    if error is not None:
        return Failure("a sound case", error.partition("\n")[0][:60], error)
    return judged(case, folder)


def _keep(seed: int, failure: Failure, folder: Path, out: Path) -> None:
    """Write the case of `seed`, simplified, with what was said of it."""
    choices = Choices.random(seed)
    compose(choices)

    def fails(forced: object) -> bool:
        assert isinstance(forced, dict)
        case = compose(Choices.random(seed, forced))
        if (case.fault.name if case.fault else None) != fault:
            return False
        wrong = generator_error(case)
        if wrong is not None:
            return failure.expected == "a sound case"
        found = judged(case, folder)
        return found is not None and found.kind == failure.kind

    original = compose(Choices.random(seed))
    fault = original.fault.name if original.fault else None
    small = compose(Choices.random(seed, simplified(choices.made, fails)))
    again = judged(small, folder) if generator_error(small) is None else failure
    told = f"# seed {seed}\n# expected {failure.expected}; got {failure.got}\n"
    detail = "".join(f"# {line}\n" for line in (again or failure).detail.splitlines())
    (out / f"attention_{seed}.py").write_text(f"{small.source}{told}{detail}", encoding="utf-8")
    print(f"{seed}: expected {failure.expected}; got {failure.got}", flush=True)
