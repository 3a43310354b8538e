"""MHA306: queries that no key is left for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.mask_facts import EmptyRows, Masking, MaskOverflow
from mha_lint.model.mask_fit_facts import MaskFit, Misplaced
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_nan(check: Check, site: Site, at: At) -> None:
    empty = EmptyRows(at(22), 16, 48, True, True, -float("inf"), "query 0 of sample 2")
    assert check("MHA306", site(masking=Known(Masking(empty=empty), "replayed"))) == [
        Violation(
            "16 of 48 queries (the first: query 0 of sample 2) have no key left, and their weights are"
            " NaN, which reaches the output",
            at=at(22),
            here="hides every key of a query",
            why="a softmax over nothing has no answer: minus infinity throughout gives NaN, a finite"
            " fill equal weights for all hidden keys",
            help="leave such queries one key, or set their weights to 0 behind the softmax:"
            " weights.masked_fill(hidden, 0.0)",
            evidence=("replayed",),
            confirm="identity: the recorded output holds NaN",
        )
    ]


def test_equal_weights(check: Check, site: Site, at: At) -> None:
    empty = EmptyRows(at(22), 16, 48, False, False, -1e9, "row 3")
    (found,) = check("MHA306", site(masking=Known(Masking(empty=empty))))
    assert found.message.endswith("and attend to all the keys that the mask hides")
    assert found.confirm == (
        "witness: the output changes when the weights of these queries are set to 0"
    )


def test_what_another_rule_tells(check: Check, site: Site, at: At) -> None:
    empty = EmptyRows(at(22), 16, 48, True, False, -1e9, "row 3")
    overflow = MaskOverflow(at(14), "sum", -6.8e38, -float("inf"), "float32", 8, 48, True)
    facts = site(masking=Known(Masking(empty=empty, overflow=overflow)))
    assert check("MHA306", facts) == []
    quiet = replace(overflow, nan_rows=0)
    assert len(check("MHA306", site(masking=Known(Masking(empty=empty, overflow=quiet))))) == 1


def test_a_mask_that_lies_elsewhere(check: Check, site: Site, at: At) -> None:
    empty = EmptyRows(at(22), 16, 48, False, False, -1e9, "row 3")
    fit = MaskFit(misplaced=(Misplaced("queries", "mask", "so", True, None),))
    facts = site(masking=Known(Masking(empty=empty)), mask_fit=Known(fit))
    assert check("MHA306", facts) == []
