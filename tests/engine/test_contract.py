"""What the code is meant to be: stated contracts drop findings, names only say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.engine.contract import without_expected
from mha_lint.model.contract import ContractEntry
from mha_lint.model.finding import Finding, Severity
from mha_lint.model.source import Span
from tests.facts.conftest import PLAIN, edited

if TYPE_CHECKING:
    from tests.engine.conftest import Check

SCALE = "        scores = scores / math.sqrt(self.d_k)\n"


@pytest.mark.parametrize(
    ("edit", "code", "expect"),
    [
        ((SCALE, ""), "MHA201", "scale=none"),
        (("math.sqrt(self.d_k)", "self.d_k"), "MHA202", "scale=mup"),
        (("scores.softmax(dim=-1)", "scores"), "MHA205", "normaliser=any"),
        (("return self.out_proj(merged)", "return merged"), "MHA101", "no-output-projection"),
    ],
)
def test_a_stated_contract(edit: tuple[str, str], code: str, expect: str, checked: Check) -> None:
    for stated, codes in (((), [code]), ((expect,), []), (("self",), [code])):
        report = checked(
            "a.py::MHA",
            files={"a.py": edited(PLAIN, edit)},
            build="MHA(24, 4)",
            call="torch.randn(2, 5, 24)",
            expect=stated,
            crosscheck=False,
        )
        loud = [f.code for f in report.findings() if f.severity is not Severity.NOTE]
        assert loud == codes, stated


def test_entries_of_the_report(checked: Check) -> None:
    text = PLAIN.replace("class MHA", "class CausalMHA")
    report = checked("a.py::CausalMHA", files={"a.py": text}, expect=("scale=mup", "self"))
    assert report.targets[0].contract == (
        ContractEntry("scale", "mup", "stated"),
        ContractEntry("self", True, "stated"),
        ContractEntry("causal", True, "class name CausalMHA"),
    )


def test_what_is_stated_outweighs_the_name(checked: Check) -> None:
    text = PLAIN.replace("class MHA", "class CausalMHA")
    report = checked("a.py::CausalMHA", files={"a.py": text}, expect=("causal=no",))
    assert report.targets[0].contract == (ContractEntry("causal", "no", "stated"),)


def test_a_name_alone_drops_nothing() -> None:
    finding = Finding("MHA201", "missing-scale", Severity.ERROR, "m", Span("a.py", 1))
    named = ContractEntry("scale", "none", "class name ScaleNone")
    assert without_expected((finding,), (named,)) == (finding,)
    stated = ContractEntry("scale", "none", "stated")
    assert without_expected((finding,), (stated,)) == ()
    other = ContractEntry("scale", "other", "stated")
    assert without_expected((finding,), (other,)) == (finding,)
