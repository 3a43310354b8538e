"""A model whose call cannot be recorded as a whole is judged by its modules."""

from __future__ import annotations

import linecache
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mha_lint.engine import modules
from mha_lint.engine.modules import TOO_LARGE, judge_modules, recorded
from mha_lint.engine.target import Judged, judge_subject
from mha_lint.model.report import Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import builtin_pack, load_pack
from mha_lint.targets.live import live_subject, take
from mha_lint.targets.subject import Subject


class Attention(nn.Module):
    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (4, 6)).transpose(1, 2) for m in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.mT / math.sqrt(self.divisor), -1)
        joined: Tensor = (weights @ v).transpose(1, 2).flatten(2)
        return joined


class Layer(nn.Module):
    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.attention, self.out = Attention(divisor), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.out(self.attention(x))
        return x + mixed


class Routed(nn.Module):
    """How often a layer is applied depends on the data, so no recording holds for other inputs."""

    def __init__(self, divisors: list[float]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(d) for d in divisors)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * int(abs(float(x.sum())) * 1000)


def subject_of(divisors: list[float]) -> Subject:
    torch.manual_seed(0)
    return live_subject(take(Routed(divisors), (torch.randn(2, 7, 24),), {}))


SETTINGS = Settings(str(Path(__file__).parent))
SPEC = TargetSpec(text="routed", path="test_modules.py")


def test_as_a_whole_it_is_not_judged() -> None:
    report = judge_subject(subject_of([6.0, 6.0]), SPEC, SETTINGS, []).report
    assert report.status is Status.FAILED
    assert report.reason is not None and "does not reproduce the module" in report.reason


def test_its_layers_are_judged_once_with_the_projection_around_them() -> None:
    subject = subject_of([6.0, 6.0, 6.0])
    judged = judge_modules(subject, SPEC, SETTINGS, load_pack(builtin_pack()), recorded(subject))
    assert judged is not None
    report = judged.report
    assert (report.status, report.findings, report.class_name) == (Status.CHECKED, (), "Routed")
    (site,) = report.sites
    assert (site.module, site.repeated) == ("layers.0.attention", 3)
    assert (site.num_heads, site.head_dim, site.output_projection) == (4, 6, True)


def test_a_fault_of_one_layer_is_told_at_its_line() -> None:
    subject = subject_of([6.0, 24.0])
    judged = judge_modules(subject, SPEC, SETTINGS, load_pack(builtin_pack()), recorded(subject))
    assert judged is not None
    (finding,) = judged.report.findings
    assert finding.code == "MHA202"
    assert "math.sqrt(self.divisor)" in linecache.getline(__file__, finding.span.line)
    assert [s.module for s in judged.report.sites] == ["layers.0.attention", "layers.1.attention"]


@pytest.mark.parametrize("module", [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))])
def test_without_attention_there_is_nothing_to_judge(module: nn.Module) -> None:
    subject = live_subject(take(module, (torch.randn(2, 4),), {}))
    assert judge_modules(subject, SPEC, SETTINGS, [], recorded(subject)) is None


@pytest.mark.parametrize("made_up", [True, False])
def test_what_nobody_wrote_stays_so_inside(made_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def judged(subject: Subject, *rest: Any) -> Judged:
        seen.append(subject.made_up)
        return judge_subject(subject, *rest)

    monkeypatch.setattr(modules, "judge_subject", judged)
    subject = subject_of([6.0, 6.0])
    subject.made_up = made_up
    assert judge_modules(subject, SPEC, SETTINGS, [], recorded(subject)) is not None
    assert set(seen) == {made_up}


class Chooser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(24, 24), nn.Linear(24, 24)
        self.v = nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = torch.softmax(self.q(x) @ self.k(x).mT / math.sqrt(24), -1) @ self.v(x)
        return chosen


class Around(Attention):
    """Attends to what another attention made of the input."""

    def __init__(self, divisor: float) -> None:
        super().__init__(divisor)
        self.chooser = Chooser()

    def forward(self, x: Tensor) -> Tensor:
        q, k = (m(x).unflatten(-1, (4, 6)).transpose(1, 2) for m in (self.q, self.k))
        weights = torch.softmax(q @ k.mT / math.sqrt(self.divisor), -1)
        v = self.v(self.chooser(x)).unflatten(-1, (4, 6)).transpose(1, 2)
        joined: Tensor = (weights @ v).transpose(1, 2).flatten(2)
        return joined


def test_an_attention_within_another_is_told_once() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Around(24.0), nn.Linear(24, 24))
    subject = live_subject(take(model, (torch.randn(2, 7, 24),), {}))
    judged = judge_modules(subject, SPEC, SETTINGS, load_pack(builtin_pack()), recorded(subject))
    assert judged is not None
    assert sorted((s.module, s.num_heads) for s in judged.report.sites) == [
        ("0", 4),
        ("0.chooser", 1),
    ]
    (finding,) = [f for f in judged.report.findings if f.code == "MHA202"]
    assert "math.sqrt(self.divisor)" in linecache.getline(__file__, finding.span.line)


def test_of_a_large_call_two_samples_are_judged() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Attention(6.0), nn.Linear(24, 24))
    subject = live_subject(take(model, (torch.randn(64, 90, 24),), {}))
    judged = judge_modules(subject, SPEC, SETTINGS, load_pack(builtin_pack()), recorded(subject))
    assert judged is not None
    (site,) = judged.report.sites
    assert (site.module, judged.report.findings) == ("0", ())
    assert "(2, 4, 90, 90)" in " ".join(step.text for step in site.pipeline)


class Fixed(Attention):
    """Takes one length only, so that its call cannot be made smaller."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[:2] != (4, 600):
            raise ValueError("made for 4 samples of 600 positions")
        return super().forward(x)


def test_what_is_too_large_is_said_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mha_lint.engine.modules.LARGEST", 1 << 20)
    torch.manual_seed(0)
    model = nn.Sequential(Fixed(6.0), nn.Linear(24, 24))
    subject = live_subject(take(model, (torch.randn(4, 600, 24),), {}))
    judged = judge_modules(subject, SPEC, SETTINGS, load_pack(builtin_pack()), recorded(subject))
    assert judged is not None
    assert (judged.report.status, judged.report.sites) == (Status.FAILED, ())
    assert judged.report.reason == f"Fixed (0): {TOO_LARGE}"


def test_where_all_modules_hold_none_that_is_told() -> None:
    class Algebra(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            step = torch.sigmoid(x @ x.mT)
            made: Tensor = step + step @ step
            return made

    model = nn.Sequential(nn.Linear(24, 24), Algebra())
    subject = live_subject(take(model, (torch.randn(2, 7, 24),), {}))
    judged = judge_modules(subject, SPEC, SETTINGS, [], recorded(subject))
    assert judged is not None
    assert judged.report.reason == "no attention was found in the recorded call"
