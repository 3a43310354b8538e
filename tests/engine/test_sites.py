"""The rows of the table of sites: numbers, the pipeline in words, the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.model.report import Cost
from tests.engine.conftest import line_of
from tests.facts.conftest import PLAIN
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.engine.conftest import Check, Edit


def test_the_row_of_the_plain_module(judged: Edit) -> None:
    (row,) = judged().sites
    assert (row.id, row.module, row.kind, row.mask) == ("MHA.0", "", "self", "none")
    assert row.line == line_of(PLAIN, "context = weights @ v")
    assert (row.d_model, row.num_heads, row.num_kv_heads) == (24, 4, 4)
    assert (row.head_dim, row.v_dim) == (6, 6)
    assert row.scale_value == pytest.approx(6**-0.5, rel=1e-7)
    assert (row.scale_named, row.softmax_axis) == ("1/sqrt(head_dim)", "keys")
    assert row.output_projection is True
    assert [(step.text, step.bad) for step in row.pipeline] == [
        ("x (2, 5, 24)", False),
        ("q (2, 4, 5, 6)", False),
        ("scores (2, 4, 5, 5)", False),
        ("softmax over keys", False),
        ("context (2, 4, 5, 6)", False),
        ("W_O (2, 5, 24)", False),
    ]


def test_the_cost_of_the_plain_module(judged: Edit) -> None:
    cost = judged().sites[0].cost
    # Two FLOPs for each multiply-add: B 2, T 5, h 4, d_k 6, d_model 24.
    assert cost == Cost(
        parameters=4 * 24 * 24,
        projections=2 * (2 * 5) * 24 * 24 * 3,
        scores=2 * 2 * 4 * 5 * 5 * 6,
        context=2 * 2 * 4 * 5 * 5 * 6,
        output=2 * (2 * 5) * 24 * 24,
        single_head_total=2 * 10 * 24 * 24 * 3 + 2 * (2 * 2 * 5 * 5 * 24) + 2 * 10 * 24 * 24,
    )
    assert cost is not None
    assert cost.total == cost.projections + cost.scores + cost.context + cost.output
    assert cost.total == cost.single_head_total  # h heads of d_model / h cost what one costs


def test_the_cost_of_grouped_queries(checked: Check) -> None:
    spelling = SPELLINGS["grouped"]
    report = checked(
        "a.py::GroupedAttention", files={"a.py": spelling.text},
        build=spelling.build, call=spelling.call,
    )  # fmt: skip
    (row,) = report.targets[0].sites
    assert (row.num_heads, row.num_kv_heads) == (4, 2)
    assert row.cost is not None
    assert row.cost.parameters == 24 * (24 + 12 + 12) + 24 * 24
    assert row.cost.projections == 2 * 15 * 24 * (24 + 12 + 12)


@pytest.mark.parametrize(
    ("edit", "bad"),
    [
        (("scores / math.sqrt(self.d_k)", "scores * 1"), "scores (2, 4, 5, 5)"),
        (("softmax(dim=-1)", "softmax(dim=-2)"), "softmax over queries"),
        (("scores.softmax(dim=-1)", "scores"), "no softmax"),
        (("context.transpose(1, 2).reshape(B, T, C)", "context.reshape(B, T, C)"),
         "context (2, 4, 5, 6)"),
        (("return self.out_proj(merged)", "return merged"), "no W_O"),
        (("q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
          "q = self.q_proj(x).view(B, self.h, T, self.d_k)"), "q (2, 4, 5, 6)"),
    ],
)  # fmt: skip
def test_the_faulty_step_is_marked(edit: tuple[str, str], bad: str, judged: Edit) -> None:
    (row,) = judged(edit).sites
    assert [step.text for step in row.pipeline if step.bad] == [bad]


def test_heads_of_a_list_are_counted(judged: Edit) -> None:
    (row,) = judged(text=SPELLINGS["listed"].text).sites
    assert [step.text for step in row.pipeline] == [
        "x (2, 5, 24)", "q (2, 5, 6)", "scores (2, 5, 5) x 4", "softmax over keys",
        "context (2, 5, 6)", "W_O (2, 5, 24)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "named"),
    [
        ([("scores / math.sqrt(self.d_k)", "scores * self.tau"),
          ("self.h = num_heads", "self.h = num_heads\n        self.tau = nn.Parameter(torch.ones(()))")],
         "learned"),
        ([("scores = q @ k", "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)\n        scores = q @ k"),
          ("scores / math.sqrt(self.d_k)", "scores * 10")], "normalised q and k"),
        ([("scores / math.sqrt(self.d_k)", "scores / math.sqrt(C)")], "1/sqrt(d_model)"),
        ([("scores / math.sqrt(self.d_k)", "scores * 0.3")], None),
    ],
)  # fmt: skip
def test_the_name_of_the_scale(
    edits: list[tuple[str, str]], named: str | None, judged: Edit
) -> None:
    assert judged(*edits).sites[0].scale_named == named


def test_linear_attention_has_few_numbers(judged: Edit) -> None:
    (row,) = judged(
        ("        scores = q @ k.transpose(-2, -1)\n", ""),
        ("        scores = scores / math.sqrt(self.d_k)\n", ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        (
            "context = weights @ v",
            "context = q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)",
        ),
    ).sites
    assert (row.kind, row.num_heads, row.scale_value, row.softmax_axis) == (
        "linear",
        None,
        None,
        None,
    )
    assert (row.output_projection, row.cost) == (None, None)
    assert "no softmax over keys" in [step.text for step in row.pipeline]
