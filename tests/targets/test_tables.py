"""What user code does to the tables of imports is undone, and told where it matters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mha_lint.targets.tables import Lists, Modules, disturbances, tell


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    table, held, path, hooks = sys.modules, dict(sys.modules), sys.path, sys.path_hooks
    try:
        yield
    finally:
        sys.modules, sys.path, sys.path_hooks = table, path, hooks
        table.update(held)


def test_emptied_table_is_filled_again() -> None:
    before = Modules.now()
    sys.modules.clear()
    told = before.put_back()
    assert (told, sys.modules) == (["entries of sys.modules"], before.held)


def test_removed_and_replaced_modules_are_named() -> None:
    before, json = Modules.now(), sys.modules["json"]
    del sys.modules["warnings"]
    sys.modules["json"] = sys
    assert sorted(before.put_back()) == ["the module json", "the module warnings"]
    assert sys.modules["json"] is json


def test_nothing_is_told_of_new_modules() -> None:
    before = Modules.now()
    sys.modules["some_new_module"] = sys
    assert before.put_back() == []
    assert sys.modules.pop("some_new_module") is sys


@pytest.mark.parametrize("value", [{}, None])
def test_another_table_is_taken_out(value: Any) -> None:
    before = Modules.now()
    sys.modules = value
    assert before.put_back() == ["sys.modules"]
    assert sys.modules is before.table


def test_missing_table_is_put_back() -> None:
    before = Modules.now()
    del sys.modules
    assert before.put_back() == ["sys.modules"]
    assert sys.modules is before.table


def test_lists_are_the_same_again() -> None:
    told: list[str] = []
    before, path, content = Lists.now(), sys.path, list(sys.path)
    sys.path.insert(0, "/elsewhere")
    sys.path_hooks = None  # type: ignore[assignment]
    with disturbances(told):
        before.put_back()
    assert (sys.path, told) == (content, ["sys.path_hooks"])
    assert sys.path is path
    assert sys.path_hooks is {n: v for n, v, _ in before.held}["path_hooks"]


def test_what_was_no_list_before_is_left_alone() -> None:
    sys.path_hooks = None  # type: ignore[assignment]
    told: list[str] = []
    before = Lists.now()
    with disturbances(told):
        before.put_back()
    assert getattr(sys, "path_hooks") is None  # noqa: B009  # its type says that it never is
    assert told == []


def test_innermost_listener_is_told_once() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with disturbances(outer), disturbances(inner):
        tell(["a", "b"])
        tell(["b"])
    tell(["nobody hears this"])
    assert (outer, inner) == ([], ["a", "b"])
