"""Calls of a running program, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.engine.live import check_calls, spec_of
from mha_lint.model.report import NotChecked, Status
from mha_lint.model.settings import Settings, UsageError
from mha_lint.targets.live import take
from mha_lint.targets.live.snapshot import with_count

SETTINGS = Settings(str(Path(__file__).parent))


class Heads(nn.Module):
    """Attention whose output projection stands in what calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = (y.view(b, t, 4, 8).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        s: torch.Tensor = q @ k.mT / 8**0.5
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, heads: nn.Module) -> None:
        super().__init__()
        self.heads, self.out = heads, nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(self.heads(x))  # type: ignore[no-any-return]


def codes(report: Any) -> list[str]:
    return [f.code for f in report.findings()]


def test_the_calls_around_it_have_the_output_projection() -> None:
    heads, x = Heads(), torch.randn(2, 6, 32)
    alone = take(heads, (x,), {})
    assert codes(check_calls([alone], SETTINGS)) == ["MHA101"]
    inside = take(heads, (x,), {}, enclosing=(take(Layer(heads), (x,), {}),))
    assert codes(check_calls([inside], SETTINGS)) == []


def test_place_and_count_are_told() -> None:
    one = with_count(take(Heads(), (torch.randn(2, 6, 32),), {}, where="train.py:7"), 12)
    (target,) = check_calls([one], SETTINGS).targets
    assert target.notes[0] == "at train.py:7"
    assert target.sites[0].repeated == 12
    assert (target.target, target.path) == ("test_live.py::Heads", "test_live.py")


def test_a_batch_of_one_is_widened() -> None:
    one = take(Heads(), (torch.randn(1, 6, 32),), {})
    (target,) = check_calls([one], SETTINGS).targets
    assert "called with x=(2, 6, 32)" in target.notes
    assert [f.code for f in target.findings] == ["MHA101"]


def test_calls_that_could_not_be_copied_fail() -> None:
    report = check_calls([], SETTINGS, others=[NotChecked("too large", target="a.py::A")])
    (target,) = report.targets
    assert (target.target, target.status, target.reason) == ("a.py::A", Status.FAILED, "too large")


def test_a_call_that_fails_is_told() -> None:
    one = take(Heads(), (torch.randn(2, 6, 31),), {})
    (target,) = check_calls([one], SETTINGS).targets
    assert target.status is Status.FAILED
    assert (target.reason or "").startswith("the call could not be made again: call: RuntimeError")


def test_only_a_call_that_the_user_named_must_hold_attention() -> None:
    one = take(nn.Linear(3, 3), (torch.randn(2, 3),), {})
    assert spec_of(one, SETTINGS).stated
    assert not spec_of(one, SETTINGS, stated=False).stated
    assert check_calls([one], SETTINGS).targets[0].status is Status.FAILED


def test_words_of_the_contract_are_checked() -> None:
    with pytest.raises(UsageError, match="nonsense"):
        check_calls([], SETTINGS, expect=("nonsense",))
