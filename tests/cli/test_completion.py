"""What the shell completes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from mha_lint.cli.main import cli
from mha_lint.rulebook.pack import builtin_pack, load_pack
from tests.cli.test_commands import process


def completed(*words: str) -> list[tuple[str, str]]:
    """Return type and value of what completes the last of `words`."""
    shell = ShellComplete(cli, {}, "mha-lint", "_MHA_LINT_COMPLETE")
    return [(i.type, i.value) for i in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    "words",
    [("check", "models/a"), ("inspect", "models/a"), ("check", "-o", "models/a"),
     ("check", "a.py", "--config", "models/a")],
)  # fmt: skip
def test_files(words: tuple[str, ...]) -> None:
    assert completed(*words) == [("file", "models/a")]


def test_classes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("import torch.nn as nn\n\n\nclass Plain:\n    pass\n\n\nclass Net(nn.Module):\n"
                    "    def forward(self, x):\n        return (x @ x.mT).softmax(-1) @ x\n")  # fmt: skip
    assert completed("check", f"{path}::") == [("plain", f"{path}::Net")]
    assert completed("check", f"{path}::X") == []
    assert completed("check", f"{path}x::") == []


def test_codes_also_after_a_comma() -> None:
    codes = [rule.code for rule in load_pack(builtin_pack())]
    twos = [code for code in codes if code.startswith("MHA2")]
    assert completed("explain", "mha2") == [("plain", code) for code in twos]
    for option in ("--select", "--ignore", "--extend-select"):
        assert completed("check", option, "MHA101,MHA2") == [
            ("plain", f"MHA101,{code}") for code in twos
        ]


def test_words_of_the_contract() -> None:
    assert completed("check", "--expect", "gqa") == [
        ("plain", "gqa=blocked"),
        ("plain", "gqa=tiled"),
    ]


def test_completion_needs_no_torch() -> None:
    code = (
        "import sys, click; from mha_lint.cli.main import cli;"
        "from click.shell_completion import ShellComplete;"
        "s = ShellComplete(cli, {}, 'mha-lint', 'X');"
        "s.get_completions(['check'], 'a'); s.get_completions(['explain'], 'M');"
        "print('torch' in sys.modules)"
    )
    assert process("-c", code).stdout == "False\n"
