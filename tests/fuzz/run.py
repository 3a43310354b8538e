"""Run a fuzz test for long, by hand, and go on after failures.

    python tests/fuzz/run.py attention --minutes 30 --out failures

A name is a module of this folder with `run(minutes, out)`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    """Run the named fuzz test."""
    folder = Path(__file__).parent
    names = sorted(
        p.stem for p in folder.glob("*.py") if "\ndef run(" in p.read_text(encoding="utf-8")
    )
    parser = argparse.ArgumentParser(description="Fuzz mha-lint for long.")
    parser.add_argument("name", choices=names)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    importlib.import_module(f"tests.fuzz.{arguments.name}").run(arguments.minutes, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
