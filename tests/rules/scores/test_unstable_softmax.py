"""MHA207: a softmax that overflows, or that a shift takes apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.numeric_facts import AddedToSum, Overflow, Stability
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_an_exponential_without_its_maximum(check: Check, site: Site, at: At) -> None:
    fact = Stability(exponential=Overflow("float32", 3.4e38, 266.2, 9, 288, at(31)))
    assert check("MHA207", site(stability=Known(fact, "run again"))) == [
        Violation(
            "the exponential of the scores is divided by its sum without their maximum taken off:"
            " in float32 scores of 266 give inf / inf",
            at=at(31),
            here="exp(266) is inf in float32",
            why="9 of 288 weights are no numbers then, and scores grow in training",
            help="torch.softmax(scores, dim=-1), or take scores.amax(dim=-1, keepdim=True) off"
            " first",
            evidence=("run again",),
            confirm="witness: with the scores as recorded all weights are finite; with finite"
            " scores of up to 266, 9 of 288 weights are inf or NaN",
        )
    ]


def test_a_product_that_overflows_first(check: Check, site: Site, at: At) -> None:
    fact = Stability(product=Overflow("float16", 65504.0, 160000.0, 28, 72, None), gain=0.125)
    (found,) = check("MHA207", site(stability=Known(fact)))
    assert found.message == (
        "q.k overflows float16 before the scale is applied: 28 of 72 raw scores of this call exceed"
        " 65504, and would be at most 20000 if q were scaled first"
    )
    assert (found.at, found.here) == (at(20), "reaches 160000")
    assert found.confirm == (
        "witness: in float16 28 raw scores are infinite; in float64 the largest of them is 160000,"
        " times 0.125 a number that fits"
    )


def test_a_constant_that_was_not_shifted(check: Check, site: Site, at: At) -> None:
    (found,) = check(
        "MHA207", site(stability=Known(Stability(added=AddedToSum(1.0, (0.5, 0.82), at(33)))))
    )
    assert found.message == (
        "1 is added to a sum of exponentials from which the maximum m was taken off, while 1 itself"
        " was not shifted: it has to become exp(-m)"
    )
    assert (found.at, found.here) == (at(33), "1 is not shifted")
    (found,) = check(
        "MHA207", site(stability=Known(Stability(added=AddedToSum(0.5, (0.5, 0.82), None))))
    )
    assert found.message.endswith("it has to become 0.5 exp(-m)")
    assert found.at == at(23)


def test_an_epsilon_is_fine(check: Check, site: Site) -> None:
    assert check("MHA207", site(stability=Known(Stability(short=1e-6)))) == []
