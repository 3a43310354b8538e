"""MHA512: key/value heads are repeated along another axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, Layout, LayoutKind, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.position_facts import HeadGroups, WrongRepeat
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def groups(repeat: WrongRepeat | None) -> Known[HeadGroups]:
    numbers = (0, 0, 1, 1)
    found = HeadGroups(4, 2, numbers, numbers, "blocked", None, repeat=repeat)
    return Known(found, "heads")


@pytest.mark.parametrize(("operand", "name"), [("k", "key"), ("v", "value")])
def test_positions(check: Check, site: Site, at: At, operand: str, name: str) -> None:
    repeat = WrongRepeat("positions", operand, "position 0 stands there twice", at(17))
    assert check("MHA512", site(head_groups=groups(repeat))) == [
        Violation(
            f"the {name} heads are repeated along the positions, not along the heads:"
            " position 0 stands there twice",
            at=at(17),
            here="repeats the positions",
            why="each query head should meet every position of one key head once",
            help="repeat_interleave(num_heads // num_kv_heads, dim=head axis)",
            evidence=("heads",),
            confirm="identity: position 0 stands there twice",
        )
    ]


@pytest.mark.parametrize(
    ("operand", "fact"), [("k", "split_k"), ("v", "split_v"), ("v", "split_q")]
)
@pytest.mark.parametrize("kind", [LayoutKind.SCRAMBLED, LayoutKind.OVER_HEADS])
def test_silent_where_the_split_is_wrong(
    check: Check, site: Site, operand: str, fact: str, kind: LayoutKind
) -> None:
    repeat = WrongRepeat("positions", operand, "position 0 stands there twice", None)
    layout = Known(Layout(kind, fact[-1], ("positions", "channels"), ("channels",), "", None))
    assert check("MHA512", site(head_groups=groups(repeat), **{fact: layout})) == []


def test_split_of_another_operand_silences_nothing(check: Check, site: Site) -> None:
    repeat = WrongRepeat("positions", "k", "position 0 stands there twice", None)
    layout = Known(Layout(LayoutKind.SCRAMBLED, "v", ("positions",), ("channels",), "", None))
    assert len(check("MHA512", site(head_groups=groups(repeat), split_v=layout))) == 1


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA512", site(head_groups=groups(None))) == []
