"""Print what mha-lint costs, in one table, beside the work that cannot be avoided.

Run by hand: ``python tests/bench/run.py [ROUNDS] [ROW ...]``, rows as letters. Each figure is the
median over rounds of the ratio of two runs made one right after the other, so that a busy machine
slows both alike; it says so where it is anything else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import commands, large, ratios, scanning

Row = tuple[str, str, str, str]

ROWS: dict[str, Callable[[int], Iterator[Row]]] = {
    "a": commands.one_file,
    "b": scanning.help_,
    "c": large.recorder,
    "d": scanning.scan,
    "e": commands.submissions,
    "f": large.whole_405b,
    "g": large.layers,
    "s": large.sequence,
    "h": commands.known_file,
    "more": ratios.rows,
}
"""What each row measures; "s" is (g) against sequence length, "more" what is asked less often."""


def main() -> None:
    """Print the rows that are asked for, else all."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled files are kept, as users have it
    asked = sys.argv[1:]
    rounds = int(asked.pop(0)) if asked and asked[0].isdigit() else 7
    print(f"{'what':<60}{'figure':>12}{'at most':>9}   against")
    for name in asked or ROWS:
        for what, figure, limit, against in ROWS[name](rounds):
            print(f"{what:<60}{figure:>12}{limit:>9}   {against}", flush=True)


if __name__ == "__main__":
    main()
