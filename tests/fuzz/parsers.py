"""Fuzz everything that reads what users write: sources, notebooks, settings, configs, checkpoints.

Only data or a parser's own errors may come out, in time, and in no more memory than in proportion to
the input. ``python tests/fuzz/run.py parsers --minutes 30 --out DIR`` runs it for long, with another
seed each time; the everyday tests run a little of it, the same each time.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.parsers_dims import (
    check_both,
    check_config,
    check_header,
    check_index,
    check_state,
    configs,
    headers,
    indices,
    states,
)
from tests.fuzz.parsers_files import books, check_folder, check_notebook, trees
from tests.fuzz.parsers_settings import check_parameters, check_toml, tomls, words
from tests.fuzz.parsers_source import (
    check_cell,
    check_named,
    check_source,
    check_suppressions,
    encoded,
    texts,
)
from tests.fuzz.parsers_watch import Fault, Parser, as_bytes, fault_of

PARSERS = (
    Parser("source", encoded(texts), check_source),
    Parser("suppressions", encoded(texts), check_suppressions),
    Parser("cell", encoded(texts), check_cell),
    Parser("notebook", books(), check_notebook),
    Parser("folder", trees, check_folder),
    Parser("target", words, check_named),
    Parser("parameters", words, check_parameters),
    Parser("toml", tomls(), check_toml),
    Parser("config", configs(), check_config),
    Parser("safetensors", headers(), check_header),
    Parser("config and safetensors", st.tuples(configs(), headers()), check_both),
    Parser("torch state", states(), check_state),
    Parser("index", indices(), check_index),
)
ROUND = 200
"""Cases of one parser before it is the next one's turn."""
WEIGHED = 20
"""Of so many cases one is weighed."""


def cases(parser: Parser, count: int, found: Callable[[Fault], None], number: int | None) -> int:
    """Read `count` cases, the same each time where `number` is None; return how many were read."""
    read = 0
    folder = Path(tempfile.mkdtemp(prefix="mha-lint-fuzz-"))

    @settings(
        max_examples=count,
        derandomize=number is None,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(parser.cases)
    def one(case: Any) -> None:
        nonlocal read
        read += 1
        here = folder / str(read)
        here.mkdir()
        fault = fault_of(parser, case, here, weigh=read % WEIGHED == 0)
        shutil.rmtree(here, ignore_errors=True)
        if fault is not None:
            found(fault)

    try:
        (one if number is None else seed(number)(one))()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return read


def run(minutes: float, out: Path) -> None:
    """Fuzz for so long; write the smallest case of each kind of failure to files in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    number = random.SystemRandom().randrange(1 << 32)
    print(f"seed {number}", flush=True)
    counts: Counter[str] = Counter()
    faults: dict[tuple[str, str], Fault] = {}
    times: Counter[tuple[str, str]] = Counter()

    def found(fault: Fault) -> None:
        key = fault.kind, fault.place
        times[key] += 1
        if key not in faults:
            print(f"{fault.parser}: {fault.kind} at {fault.place}", flush=True)
        if key not in faults or len(fault.case) < len(faults[key].case):
            faults[key] = fault
            _write(fault, out)

    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for parser in PARSERS:
            counts[parser.name] += cases(parser, ROUND, found, number + counts.total())
            if time.monotonic() >= end:
                break
    for parser in PARSERS:
        print(f"{counts[parser.name]:9d} cases of {parser.name}")
    print(f"{counts.total():9d} cases, {len(faults)} kinds of failure in {out}")
    for key, fault in sorted(faults.items()):
        print(f"{times[key]:9d} x {fault.parser}: {fault.kind} at {fault.place}")


def _write(fault: Fault, out: Path) -> None:
    name = re.sub(r"\W+", "-", f"{fault.parser} {fault.kind} {fault.place}")[:150]
    (out / f"{name}.case").write_bytes(as_bytes(fault.case))
    (out / f"{name}.txt").write_text(fault.trace, encoding="utf-8", errors="backslashreplace")
