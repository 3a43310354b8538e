"""MHA110: a loop over the heads overwrites its own input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import (
    Known,
    SiteFacts,
)
from mha_lint.model.finding import Label, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_all_operands(check: Check, site: Site, at: At) -> None:
    assert check("MHA110", site(overwritten=Known(("q", "k", "v"), "head 1 reads head 0"))) == [
        Violation(
            "the loop over the heads overwrites its own input: the q, k and v of one head"
            " are projected from those of the head before",
            at=at(10),
            here="reads what the head before made",
            why="every head must project the same input; here head i sees it through i + 1 maps",
            help="bind the projection to a new name: q_i = layer(x)",
            evidence=("head 1 reads head 0",),
            labels=(Label(at(11), "the same for k"), Label(at(12), "the same for v")),
            confirm="identity: the q of a later head is computed from an earlier head's",
        )
    ]


def test_the_keys_alone(check: Check, site: Site, at: At) -> None:
    (found,) = check("MHA110", site(overwritten=Known(("k",))))
    assert found.at == at(11)
    assert found.message.endswith("the k of one head is projected from that of the head before")
    assert found.labels == ()
    assert found.help == "bind the projection to a new name: k_i = layer(x)"
