"""What README shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mha_lint.model.contract import EXPECTATIONS
from tests.cli.test_commands import process

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```\n\$ mha-lint (.*)\n((?s:.*?))^```$", README, re.MULTILINE)


def steady(text: str) -> str:
    """Return `text` without what differs from machine to machine: times and rounding errors."""
    text = re.sub(r"\d+\.\d s$", "0.0 s", text.strip(), flags=re.MULTILINE)
    return re.sub(r"max difference \S+\)", "max difference 0)", text)


def test_there_is_a_sample() -> None:
    assert [command.partition(" ")[0] for command, _ in SHOWN] == ["check", "check", "dims"]


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_the_sample_is_what_is_printed(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = process("-m", "mha_lint", *shlex.split(command))
    assert steady(done.stdout) == steady(shown)
    assert done.returncode == (0 if "no findings" in shown else 1)


def test_every_word_of_the_contract_is_explained() -> None:
    assert [word for word in EXPECTATIONS if f"`{word}`" not in README] == []
