"""What a built wheel installs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mha_lint import __version__

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built with the installed hatchling: nothing is downloaded."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    options = ["--no-build-isolation", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run([*command, *options], check=True)
    return zipfile.ZipFile(next(out.glob("*.whl")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> list[str]:
    name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return wheel.read(name).decode().splitlines()


def test_only_mha_lint_is_installed_at_top_level(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mha_lint"}


def test_every_rule_of_the_checkout_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    shipped = {n.removeprefix("mha_lint/_rules/") for n in wheel.namelist() if "/_rules/" in n}
    here = {p.relative_to(ROOT / "rules").as_posix() for p in (ROOT / "rules").rglob("*.py")}
    assert here
    assert shipped == here


def test_types_and_schema_are_shipped(wheel: zipfile.ZipFile) -> None:
    assert {"mha_lint/py.typed", "mha_lint/report/schema.json"} <= set(wheel.namelist())


def test_metadata(metadata: list[str]) -> None:
    assert f"Version: {__version__}" in metadata
    assert "License-Expression: MIT" in metadata
    required = [
        row for row in metadata if row.startswith("Requires-Dist") and "extra ==" not in row
    ]
    assert [row.split()[1].split(">")[0] for row in required] == ["click", "rich", "torch"]


def test_an_installed_wheel_runs(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked beside nothing else, it finds its rules."""
    wheel.extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop()); from mha_lint.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "rules", str(tmp_path)],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "MHA101" in done.stdout
