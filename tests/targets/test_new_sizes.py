"""New sizes coincide with nothing, numbers that stay included."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import islice

from mha_lint.targets.current_sizes import Sizes
from mha_lint.targets.new_sizes import Change, changes, of_keys

NOW = Sizes(width=40, heads=5, kv_heads=None, lengths=(9,), batch=2)


def test_a_count_that_stays_is_avoided() -> None:
    (plain,) = islice(changes(NOW), 1)
    assert plain.heads is not None
    held = dataclasses.replace(NOW, fixed=frozenset({plain.heads, plain.lengths[0]}))
    (other,) = islice(changes(held), 1)
    assert other.heads != plain.heads
    assert other.lengths != plain.lengths


def test_keys_get_a_length_of_their_own() -> None:
    change = Change(Fraction(3, 2), 3, (10,))
    assert of_keys(NOW, change, 20) == {}
    shared = dataclasses.replace(NOW, shared=(9,))
    assert of_keys(shared, change, 20) == {9: 11}
    assert of_keys(shared, change, 11) == {9: 13}
