"""What is wrong with a flag flipped is found, and names the flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_lint.model.finding import Severity
from tests.facts.test_branches import FUSED

if TYPE_CHECKING:
    from tests.engine.conftest import Check

CALL = "torch.randn(2, 5, 24)"


def found(checked: Check, text: str) -> list[tuple[str, str | None, int]]:
    report = checked("a.py::MHA", files={"a.py": text}, build="MHA(24, 4)", call=CALL)
    assert report.crashes == ()
    loud = [f for f in report.findings() if f.severity is not Severity.NOTE]
    return [(f.code, f.branch, f.span.line) for f in loud]


def line(text: str, part: str) -> int:
    return next(n for n, x in enumerate(text.splitlines(), 8) if part in x)


def test_a_right_module_has_right_branches(checked: Check) -> None:
    assert found(checked, FUSED) == []


def test_a_softmax_axis_on_the_branch_that_gives_weights(checked: Check) -> None:
    text = FUSED.replace("softmax(-1)", "softmax(-2)")
    assert found(checked, text) == [("MHA204", "fast=False", line(text, "softmax(-2)"))]


def test_what_is_wrong_on_both_branches_is_said_once(checked: Check) -> None:
    text = FUSED.replace(
        ".view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)", ".view(3, b, self.heads, t, -1)"
    )
    codes = [(code, branch) for code, branch, _ in found(checked, text)]
    assert ("MHA104", None) in codes
    assert len(codes) == len(set(codes))


def test_a_flag_named_after_the_thing_is_an_option(checked: Check) -> None:
    text = FUSED.replace("softmax(-1)", "softmax(-2)").replace(
        "give_weights", "softmax_over_queries"
    )
    text = text.replace("self.heads, self.fast = heads, True", "self.heads = heads")
    text = text.replace("self.fast and not", "not")
    assert found(checked, text) == []
