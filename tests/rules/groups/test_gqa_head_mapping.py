"""MHA511: query heads meet other key/value heads than is usual, or than was stated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from mha_lint.model.contract import Contract, ContractEntry
from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.position_facts import HeadGroups, WrongRepeat
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]

BLOCKS, TILES = (0, 0, 1, 1), (0, 1, 0, 1)


def groups(keys: tuple[int, ...], order: str, at: At) -> HeadGroups:
    return HeadGroups(len(keys), max(keys) + 1, keys, keys, order, at(17), at(18))


def stated(value: str) -> Contract:
    return Contract((ContractEntry("gqa", value, "stated"),))


def test_tiles(check: Check, site: Site, at: At) -> None:
    assert check("MHA511", site(head_groups=Known(groups(TILES, "tiled", at), "heads"))) == [
        Violation(
            "query heads 0 to 3 meet the key/value heads 0, 1, 0, 1: weights of Llama-like models"
            " need neighbours to share one",
            at=at(17),
            here="shares the key/value heads in this order",
            why="with weights trained for the other order each query looks into the keys of another"
            " group",
            help="for 0, 0, 1, 1: repeat_interleave(2, dim=head axis); --expect gqa=tiled if it is"
            " meant",
            evidence=("heads",),
            confirm="identity: the channels that each head reads were traced to the projections",
        )
    ]


@pytest.mark.parametrize(
    ("keys", "order", "meant", "severity"),
    [
        (TILES, "tiled", "tiled", None),
        (TILES, "tiled", "blocked", Severity.ERROR),
        (BLOCKS, "blocked", "blocked", None),
        (BLOCKS, "blocked", "tiled", Severity.ERROR),
    ],
)
def test_stated(
    check: Check, site: Site, at: At, keys: tuple[int, ...], order: str, meant: str,
    severity: Severity | None,
) -> None:  # fmt: skip
    facts = site(head_groups=Known(groups(keys, order, at)), contract=stated(meant))
    found = check("MHA511", facts)
    assert [v.severity for v in found] == ([severity] if severity else [])
    if found:
        numbers = ", ".join(map(str, keys))
        assert found[0].message == f"query heads 0 to 3 meet the key/value heads {numbers}"


def test_its_text_describes_the_order(check: Check, site: Site, at: At) -> None:
    said = Contract((ContractEntry("gqa", "tiled", "docstring: tiled"),))
    assert check("MHA511", site(head_groups=Known(groups(TILES, "tiled", at)), contract=said)) == []
    blocked = site(head_groups=Known(groups(BLOCKS, "blocked", at)), contract=said)
    assert check("MHA511", blocked) == []


def test_keys_and_values_apart(check: Check, site: Site, at: At) -> None:
    apart = replace(groups(BLOCKS, "blocked", at), values=TILES)
    (found,) = check("MHA511", site(head_groups=Known(apart)))
    assert found.message == (
        "query heads 0 to 3 meet the key heads 0, 0, 1, 1, but the value heads 0, 1, 0, 1"
    )
    assert (found.at, found.severity) == (at(18), Severity.ERROR)
    other = replace(groups(TILES, "tiled", at), values=BLOCKS)
    (found,) = check("MHA511", site(head_groups=Known(other)))
    assert found.at == at(17)


@pytest.mark.parametrize(
    ("keys", "order"), [((0, 0, 0, 0), "single"), ((0, 1, 2, 3), "each"), (BLOCKS, "blocked")]
)
def test_silent(check: Check, site: Site, at: At, keys: tuple[int, ...], order: str) -> None:
    assert check("MHA511", site(head_groups=Known(groups(keys, order, at)))) == []


def test_another_number_of_value_heads_is_a_design(check: Check, site: Site, at: At) -> None:
    single = replace(groups(BLOCKS, "blocked", at), values=(0, 0, 0, 0))
    assert check("MHA511", site(head_groups=Known(single))) == []


def test_a_wrong_axis_is_another_fault(check: Check, site: Site, at: At) -> None:
    wrong = replace(groups(TILES, "tiled", at), repeat=WrongRepeat("positions", "k", "so", None))
    assert check("MHA511", site(head_groups=Known(wrong))) == []
