"""The oracle is a second opinion: it sees data only, and none of the engine's own findings."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import mha_lint.oracle

ALLOWED = {"torch", "mha_lint.model", "mha_lint.oracle"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_it_imports_nothing_of_facts_sites_or_capture() -> None:
    files = sorted(Path(mha_lint.oracle.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    for path in files:
        for name in imported(path):
            known = name.split(".")[0] in sys.stdlib_module_names
            assert known or any(f"{name}.".startswith(f"{a}.") for a in ALLOWED), (path, name)
