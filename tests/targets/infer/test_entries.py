"""Entries of made-up configs are read and changed."""

from __future__ import annotations

import pytest

from mha_lint.targets.infer.entries import config_entries, is_synthetic_config, with_entry

NESTED = "SimpleNamespace(width=24, inner=SimpleNamespace(heads=4), rate=0.1)"


def test_entries_of_a_config_and_of_those_inside_it() -> None:
    assert config_entries(NESTED) == {
        "width": "24",
        "inner": "SimpleNamespace(heads=4)",
        "rate": "0.1",
        "heads": "4",
    }
    assert config_entries("{'a': 1, 'b': (2, 3)}") == {"a": "1", "b": "(2, 3)"}


@pytest.mark.parametrize(
    ("config", "name", "text", "expected"),
    [
        (NESTED, "heads", "2", NESTED.replace("heads=4", "heads=2")),
        ("SimpleNamespace()", "heads", "2", "SimpleNamespace(heads=2)"),
        ("AttributeDict(a=1)", "b", "'x'", "AttributeDict(a=1, b='x')"),
        ("{'a': 1}", "a", "5", "{'a': 5}"),
        ("{'a': 1}", "b", "(1, 2)", "{'a': 1, 'b': (1, 2)}"),
    ],
)
def test_an_entry_is_changed_where_it_stands_or_added(
    config: str, name: str, text: str, expected: str
) -> None:
    assert with_entry(config, name, text) == expected


def test_what_is_made_up() -> None:
    assert is_synthetic_config(NESTED)
    assert is_synthetic_config("{'a': 1}")
    assert not is_synthetic_config("Config(width=24)")
