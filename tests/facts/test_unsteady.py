"""Code that picks by its data may fail on other data: then nothing is known, and nothing crashes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Known, Unknown


def bench(*, picks: bool) -> Any:
    return SimpleNamespace(dependence=SimpleNamespace(picks=picks))


@unless_data_decides
def fails(bench: Any, error: Exception | None) -> Fact[int]:
    """Raise `error`, if there is one."""
    if error is not None:
        raise error
    return Known(1)


@pytest.mark.parametrize("kind", [RuntimeError, IndexError, ValueError])
def test_a_failure_where_the_data_decides(kind: type[Exception]) -> None:
    assert fails(bench(picks=True), kind("30 is not 29\nand more")) == Unknown(
        "the data decides what is read, and on other data it fails: 30 is not 29"
    )


def test_a_failure_elsewhere_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="ours"):
        fails(bench(picks=False), RuntimeError("ours"))
    with pytest.raises(TypeError, match="ours"):
        fails(bench(picks=True), TypeError("ours"))


def test_what_is_measured_is_kept() -> None:
    assert fails(bench(picks=True), None) == Known(1)
    assert fails.__doc__ == "Raise `error`, if there is one."
