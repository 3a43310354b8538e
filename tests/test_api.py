"""`mha_lint.check`: one call, from Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mha_lint
from mha_lint.model.settings import UsageError

FILE = (
    str(Path(__file__).relative_to(Path.cwd()))
    if Path(__file__).is_relative_to(Path.cwd())
    else __file__
)


def line_of(text: str) -> int:
    rows = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, row in enumerate(rows, 1) if row.strip() == text]
    return number


class Attention(nn.Module):
    def __init__(self, d: int = 32, h: int = 4, axis: int = -1) -> None:
        super().__init__()
        self.h, self.axis, self.calls = h, axis, 0
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: torch.Tensor, causal: bool = False) -> torch.Tensor:
        self.calls += 1
        print("noise")  # noqa: T201
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.h, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        s = q @ k.mT / (d // self.h) ** 0.5
        if causal:
            s = s.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        w = s.softmax(self.axis)
        return self.out((w @ v).transpose(1, 2).reshape(b, t, d))  # type: ignore[no-any-return]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, axis: int = -1) -> torch.Tensor:
    scores: torch.Tensor = q @ k.mT / q.shape[-1] ** 0.5
    return scores.softmax(axis) @ v


def places(report: mha_lint.Report) -> list[tuple[str, str, int]]:
    return [(f.code, f.span.path, f.span.line) for f in report.findings]


def test_right_attention_is_true() -> None:
    report = mha_lint.check(Attention(), torch.randn(2, 6, 32), causal=True)
    assert report
    assert report.checked
    assert report.findings == ()
    (site,) = report.sites
    assert (site.d_model, site.num_heads, site.head_dim, site.mask) == (32, 4, 8, "causal")


def test_wrong_attention_is_false_and_told_with_its_line() -> None:
    report = mha_lint.check(Attention(axis=-2), torch.randn(2, 6, 32))
    assert not report
    assert places(report) == [("MHA204", FILE, line_of("w = s.softmax(self.axis)"))]
    assert [f.code for f in report.above("error")] == ["MHA204"]
    assert "error[MHA204] wrong-softmax-axis" in str(report)
    (target,) = json.loads(report.to_json())["targets"]
    assert target["findings"][0]["line"] == line_of("w = s.softmax(self.axis)")


def test_a_function() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    assert mha_lint.check(attend, q, k, v, select=["MHA2"])
    report = mha_lint.check(attend, q, k, v, axis=-2)
    assert places(report) == [("MHA204", FILE, line_of("return scores.softmax(axis) @ v"))]


def test_rules_can_be_chosen() -> None:
    module, x = Attention(axis=-2), torch.randn(2, 6, 32)
    assert mha_lint.check(module, x, ignore=["MHA204", "MHA901"]).findings == ()
    assert mha_lint.check(module, x, select=["MHA1"]).findings == ()


def test_what_is_expected_counts() -> None:
    report = mha_lint.check(Attention(), torch.randn(2, 6, 32), expect=["causal"])
    assert [f.code for f in report.findings] == ["MHA309"]
    with pytest.raises(UsageError, match="nonsense"):
        mha_lint.check(Attention(), torch.randn(2, 6, 32), expect=["nonsense"])


def test_a_call_without_attention_or_with_an_error_is_not_checked() -> None:
    report = mha_lint.check(nn.Linear(3, 3), torch.randn(2, 3))
    assert not report
    assert not report.checked
    assert report.target.reason == "no attention was found in the recorded call"
    report = mha_lint.check(Attention(), torch.randn(2, 6, 31))
    assert not report.checked
    assert "could not be made again" in (report.target.reason or "")


def test_nothing_is_changed_and_nothing_printed(capsys: pytest.CaptureFixture[str]) -> None:
    module: Any = Attention().train()
    x = torch.randn(2, 6, 32, requires_grad=True)
    weights = {name: p.clone() for name, p in module.named_parameters()}
    before, state = x.detach().clone(), (torch.get_rng_state(), random.getstate())
    mha_lint.check(module, x)
    assert module.training
    assert module.calls == 0
    assert torch.equal(x, before)
    assert x.grad is None
    assert all(
        torch.equal(p, weights[name]) and p.grad is None for name, p in module.named_parameters()
    )
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert capsys.readouterr() == ("", "")
