"""What to do about an error whose cause lies outside the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mha_lint.targets.causes import raised_at, remedy
from mha_lint.targets.stubs import MissingPackageError


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            MissingPackageError("flash_attn.f is needed", name="flash_attn"),
            "install flash_attn, or state a --build and --call that do without it",
        ),
        (
            ModuleNotFoundError("No module named 'a.b'", name="a.b"),
            "install a, or state a --build and --call that do without it",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "tables/bias.pt"),
            "tables/bias.pt is missing: relative paths count from the folder in which mha-lint runs,"
            " so run it in another one, or state a --build that needs no file",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "/data/bias.pt"),
            "/data/bias.pt is missing: put it there, or state a --build that needs no file",
        ),
        (ImportError("unnamed"), ""),
        (FileNotFoundError("unnamed"), ""),
        (ValueError("of the code itself"), ""),
    ],
)
def test_remedies(error: BaseException, hint: str) -> None:
    assert remedy(error) == hint


def test_the_innermost_line_of_the_user_is_told(tmp_path: Path) -> None:
    file = tmp_path / "attention.py"
    code = compile(
        "import json\n\n\ndef run():\n    json.loads('{')\n\n\nrun()\n", str(file), "exec"
    )
    with pytest.raises(ValueError) as caught:
        exec(code, {})
    assert raised_at(caught.value) == "it is raised at line 5 of attention.py"
    assert raised_at(ValueError("never raised")) == ""
