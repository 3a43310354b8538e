"""MHA117: returned weights are not the applied ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Label, Violation
from mha_lint.model.numeric_facts import ReturnedWeights, ReturnFault
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_weights_from_before_a_mask(check: Check, site: Site, at: At) -> None:
    fact = ReturnedWeights(ReturnFault.HIDDEN, "[1]", "attn", 0.93, None, at(30), at(24))
    assert check("MHA117", site(returned=Known(fact, "compared"))) == [
        Violation(
            "attn (output[1]) gives up to 0.93 to keys that the applied weights hide: it was taken"
            " off before the mask",
            at=at(30),
            here="not what meets V",
            why="what is plotted, published or distilled from is another attention than the one at"
            " work",
            help="return the tensor that is multiplied with the values",
            evidence=("compared",),
            labels=(Label(at(24), "these are applied"),),
            confirm="witness: a weight that is 0 where it meets V is 0.93 in the output",
        )
    ]


@pytest.mark.parametrize(
    ("fault", "changed", "message"),
    [
        (ReturnFault.OTHER, {}, "w (output[1]) holds weights that were computed once more, and differ from the applied ones by up to 0.5"),
        (ReturnFault.OTHER, {"scale": 2.449}, "w (output[1]) holds weights that were computed once more, and differ from the applied ones by up to 0.5 (scores 2.45 times as large)"),
        (ReturnFault.SCORES, {}, "w (output[1]) is called weights, and holds scores that were not normalised"),
        (ReturnFault.TRANSPOSED, {}, "the rows of w (output[1]) are keys: it is the transpose of the applied weights"),
        (ReturnFault.REPEATED, {"name": ""}, "output[1] repeats the weights of another layer, and those of this one are missing"),
    ],
)  # fmt: skip
def test_other_faults(
    fault: ReturnFault, changed: dict[str, Any], message: str, check: Check, site: Site, at: At
) -> None:
    values: dict[str, Any] = {"output": "[1]", "name": "w", "largest": 0.5}
    fact = ReturnedWeights(fault, **{**values, **changed})
    (found,) = check("MHA117", site(returned=Known(fact)))
    assert (found.message, found.at, found.labels) == (message, at(23), ())
    assert found.confirm is not None and found.confirm.startswith(("witness: ", "identity: "))
