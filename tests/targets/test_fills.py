"""Fills that torch refuses are findings at their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mha_lint.engine.dispatch import judge_target
from mha_lint.model.report import Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec

SOURCE = """\
import torch
from torch import nn

LOW = -1e9


class Half(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, hidden):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = q @ k.mT / q.size(-1) ** 0.5
        s = FILL
        return s.softmax(-1) @ v
"""


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ("s.masked_fill(hidden, LOW)", "the fill -1e+09 does not fit into float16"),
        ("s.masked_fill_(hidden, -1e9)", "the fill -1e+09 does not fit into float16"),
        (
            "s.masked_fill(hidden, torch.finfo(torch.float32).min)",
            "the fill does not fit into float16",
        ),
    ],
)
def test_a_fill_that_half_refuses(fill: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "half.py"
    file.write_text(SOURCE.replace("FILL", fill))
    spec = TargetSpec(
        text="half.py::Half", path="half.py", qualname="Half",
        build="Half(8).half()",
        call="torch.randn(2, 5, 8).half(), torch.ones(5, 5).triu(1).bool()",
    )  # fmt: skip
    report = judge_target(spec, Settings(cwd=str(tmp_path)), []).report
    assert report.status is Status.FAILED
    (found,) = report.findings
    assert (found.code, found.rule, found.span.line) == ("MHA305", "mask-overflow", 15)
    assert found.message == f"{message}, whose most negative number is -65504"
    assert found.confirmed_by == "the call raises this error"
