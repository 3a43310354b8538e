"""MHA304: fills that leave hidden keys some weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Label, Severity, Violation
from mha_lint.model.mask_facts import Masking, WeakFill
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def weak(one: WeakFill) -> Known[Masking]:
    return Known(Masking(weak=(one,)), "replayed")


def test_a_lost_exponent(check: Check, site: Site, at: At) -> None:
    one = WeakFill(at(5), at(22), "filled", -1e-9, 1.21, 1.21, -1e-9, -0.8)
    assert check("MHA304", site(masking=weak(one))) == [
        Violation(
            "the mask fills hidden scores with -1e-09, which does not hide: a hidden key keeps 1.2"
            " times the weight of the largest visible one",
            at=at(5),
            here="-1e-09 is no minus infinity",
            why="the softmax sees an ordinary score there, and the hidden key takes part",
            help='-1e9 was probably meant, not -1e-09; float("-inf") hides in any case',
            evidence=("replayed",),
            labels=(Label(at(22), "acts here"),),
            confirm="identity: by the weights of the recorded call a hidden key keeps 1.2 times the weight of"
            " the largest visible one of its row",
        )
    ]


def test_a_positive_number(check: Check, site: Site, at: At) -> None:
    one = WeakFill(at(22), at(22), "filled", 1e9, 1e300, 1e300)
    (found,) = check("MHA304", site(masking=weak(one)))
    assert found.message.endswith("a hidden key takes all the weight from the visible ones")
    assert found.labels == ()
    assert found.help == 'fill with float("-inf"), or torch.finfo(scores.dtype).min'


def test_an_addend(check: Check, site: Site, at: At) -> None:
    one = WeakFill(at(22), at(22), "added", -10.0, 4e-5, 4e-5)
    (found,) = check("MHA304", site(masking=weak(one)))
    assert found.message.startswith("the mask takes no more than 10 off hidden scores")


def test_scores_that_outrun_the_fill(check: Check, site: Site, at: At) -> None:
    one = WeakFill(at(22), at(22), "filled", -100.0, 0.0, 0.0, -100.0, -2310.0)
    (found,) = check("MHA304", site(masking=weak(one)))
    assert found.message.endswith("the scores of visible keys go down to -2.31e+03, below that")
    assert found.severity is None
    assert found.confirm == (
        "identity: in the recorded call a hidden key has -100 at the softmax, and a visible one"
        " -2.31e+03"
    )


def test_only_at_large_inputs(check: Check, site: Site, at: At) -> None:
    one = WeakFill(at(22), at(22), "filled", -30.0, 1e-13, 0.4, -30.0, -1.0)
    (found,) = check("MHA304", site(masking=weak(one)))
    assert found.severity is Severity.WARNING
    assert "once the inputs are 60 times as large" in found.message
    assert found.confirm is not None and "with its inputs times 60" in found.confirm
