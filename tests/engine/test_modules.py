"""A model whose call cannot be recorded as a whole is judged by its modules."""

from __future__ import annotations

import linecache
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mha_lint.engine.modules import judge_modules, recorded
from mha_lint.engine.target import judge_subject
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
