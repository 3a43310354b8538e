"""The values of options: what is understood, and what is refused in one line."""

from __future__ import annotations

import click
import pytest

from mha_lint.cli.parameters import shard, size


@pytest.mark.parametrize(
    ("text", "number"), [("8G", 8 << 30), ("1.5k", 1536), ("500 MiB", 500 << 20)]
)
def test_a_size(text: str, number: int) -> None:
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "9" * 400, "5\u212a", "1e9", "G", "nan"])
def test_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size"):
        size(text)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/" + "9" * 5000, "\u0661/\u0662"])
def test_no_shard(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not of the form I/N"):
        shard(text)


def test_a_shard() -> None:
    assert shard("2/4") == (2, 4)
