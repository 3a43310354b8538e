"""The repository's own promises: what a rule file may import, where things stand, how large."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from mha_lint.rulebook.pack import builtin_pack, load_pack

ROOT = Path(__file__).resolve().parents[1]
RULE_FILES = sorted((ROOT / "rules").rglob("*.py"))
SOURCES = sorted([*(ROOT / "mha_lint").rglob("*.py"), *RULE_FILES])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST = 400


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda p: p.stem)
def test_a_rule_file_imports_only_the_rule_api(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            assert name == "mha_lint.rule_api" or top in sys.stdlib_module_names, name


def test_the_pack_in_use_is_the_checkouts() -> None:
    assert builtin_pack() == ROOT / "rules"


def test_a_rule_file_stands_in_the_folder_of_its_family() -> None:
    families = {
        "MHA0": "targets", "MHA1": "heads", "MHA2": "scores", "MHA3": "masks", "MHA4": "dropout",
        "MHA5": "positions", "MHA51": "groups", "MHA52": "cache", "MHA6": "isolation",
        "MHA9": "numbers",
    }  # fmt: skip
    for loaded in load_pack(builtin_pack()):
        family = families.get(loaded.code[:5]) or families[loaded.code[:4]]
        assert loaded.path.parent == ROOT / "rules" / family


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_fits_in_the_head(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    if len(tree.body) > 1:
        second = tree.body[1]
        assert isinstance(second, ast.ImportFrom) and second.module == "__future__"


def test_the_tests_are_no_packages() -> None:
    assert [p for p in TESTS if p.name == "__init__.py"] == []


def test_every_folder_of_the_package_is_a_layer() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name.strip(" ()") for row in layers for name in row.split("|")}
    package = ROOT / "mha_lint"
    here = {p.parent.name for p in package.glob("*/__init__.py")}
    here |= {p.stem for p in package.glob("*.py")} - {"__init__", "__main__"}
    assert here <= named


def test_the_readme_lists_every_rule() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for loaded in load_pack(builtin_pack()):
        doc = loaded.documentation
        summary = doc.summary.replace("|", "\\|")
        assert f"| {doc.code} | {doc.name} | {doc.severity} | {summary} |" in readme


def test_the_readme_and_ci_run_the_same_checks() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    steps = [
        row.removeprefix("step ")
        for row in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
        if row.startswith("step ") and not row.endswith("{")
    ]
    assert "python -m pytest" in steps
    for step in steps:
        assert f"\n{step}\n" in readme
    assert "\npython -m pip install -e '.[test]' && python -m pytest\n" in readme
