"""Run the command line with ``python -m mha_lint``."""

from __future__ import annotations

from mha_lint.cli.main import main

main()
