"""W_O in the class that holds the attention, as BertSelfOutput has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.model.report import RunReport, Status, TargetReport
from tests.facts.conftest import PLAIN, edited

if TYPE_CHECKING:
    from tests.engine.conftest import Check

INNER = edited(
    PLAIN,
    ("class MHA(nn.Module)", "class SelfAttention(nn.Module)"),
    ("        self.out_proj = nn.Linear(d_model, d_model)\n", ""),
    ("return self.out_proj(merged)", "return merged"),
)
OUTER = """

class SelfOutput(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, states, x):
        return self.norm(self.dense(states) + x)


class Attention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.self = SelfAttention(d_model, num_heads)
        self.output = SelfOutput(d_model)

    def forward(self, x):
        return self.output(self.self(x), x)
"""


def only(report: RunReport) -> TargetReport:
    assert report.crashes == ()
    (target,) = report.targets
    return target


def check_inner(checked: Check, text: str) -> TargetReport:
    return only(
        checked(
            "bert.py::SelfAttention",
            files={"bert.py": text},
            build="SelfAttention(24, 4)",
            call="torch.randn(2, 5, 24)",
            crosscheck=False,
        )
    )


def test_the_pair(checked: Check) -> None:
    target = check_inner(checked, INNER + OUTER)
    assert (target.status, target.findings) == (Status.CHECKED, ())
    (site,) = target.sites
    assert site.output_projection is True
    assert site.pipeline[-1].text == "W_O in Attention"


def test_all_three_classes_at_once(checked: Check) -> None:
    report = checked("bert.py", files={"bert.py": INNER + OUTER})
    assert [(t.class_name, t.status.value) for t in report.targets if t.sites] == [
        ("SelfAttention", "checked"),
        ("Attention", "checked"),
    ]
    assert report.findings() == []


def test_alone_it_has_none(checked: Check) -> None:
    target = check_inner(checked, INNER)
    assert [f.code for f in target.findings] == ["MHA101"]
    assert target.sites[0].output_projection is False


def test_an_enclosing_class_that_projects_nothing(checked: Check) -> None:
    text = INNER + OUTER.replace("self.dense(states)", "states")
    assert [f.code for f in check_inner(checked, text).findings] == ["MHA101"]


def test_an_enclosing_class_that_adds_first(checked: Check) -> None:
    text = INNER + OUTER.replace("self.dense(states) + x", "self.dense(states + x)")
    assert [f.code for f in check_inner(checked, text).findings] == ["MHA101"]


def test_an_enclosing_class_that_cannot_be_run_leaves_it_undecided(checked: Check) -> None:
    text = INNER + OUTER.replace("self.output(self.self(x), x)", "unknown_name(self.self(x))")
    target = check_inner(checked, text)
    assert target.findings == ()
    assert target.status is Status.UNDECIDED
    assert [(u.code, u.why) for u in target.undecided] == [
        ("MHA101", "Attention constructs it, but could not be run to see whether it projects")
    ]


def test_through_two_classes(checked: Check) -> None:
    middle = """

class Wrapper(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner = SelfAttention(d_model, num_heads)

    def forward(self, x):
        return self.inner(x)


class Model(nn.Module):
    def __init__(self, d_model=24, num_heads=4):
        super().__init__()
        self.wrapper = Wrapper(d_model, num_heads)
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, x):
        return x + self.dense(self.wrapper(x))
"""
    target = check_inner(checked, INNER + middle)
    assert target.findings == ()
    assert target.sites[0].pipeline[-1].text == "W_O in Model"


def beside(checked: Check, imports: str) -> TargetReport:
    header, outer = INNER.partition("class ")[0], OUTER
    files = {"inner.py": INNER, "outer.py": f"{imports}\n{header}\n{outer}"}
    return only(
        checked(
            "inner.py::SelfAttention",
            files=files,
            build="SelfAttention(24, 4)",
            call="torch.randn(2, 5, 24)",
            crosscheck=False,
        )
    )


@pytest.mark.parametrize(
    "imports",
    [
        "from inner import SelfAttention",
        "from .inner import SelfAttention",
        "from inner import (\n    math,\n    SelfAttention,\n)",
    ],
)
def test_the_pair_in_two_files(checked: Check, imports: str) -> None:
    report = beside(checked, imports)
    assert [f.code for f in report.findings] == []
    assert report.sites[0].output_projection is True


@pytest.mark.parametrize(
    "imports", ["", "from other import SelfAttention", "class SelfAttention(nn.Module): ..."]
)
def test_another_class_of_that_name_holds_nothing(checked: Check, imports: str) -> None:
    report = beside(checked, imports)
    assert [f.code for f in report.findings] == ["MHA101"]
