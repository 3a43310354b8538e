"""Models too large for their weights: each distinct part is judged at its real sizes."""

from __future__ import annotations

import linecache
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mha_lint.engine import check_calls
from mha_lint.model.report import Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.targets.large import WithoutLarge
from mha_lint.targets.live import take


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, divisor: float) -> None:
        super().__init__()
        self.heads, self.divisor = heads, divisor
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.o = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            m(x).view(b, t, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.divisor)
        context = scores.softmax(-1) @ v
        joined: Tensor = self.o(context.transpose(1, 2).reshape(b, t, -1))
        return joined


class Model(nn.Module):
    def __init__(self, width: int, heads: int, divisors: list[float]) -> None:
        super().__init__()
        self.table = nn.Embedding(50_000, width)
        self.layers = nn.ModuleList(Attention(width, heads, d) for d in divisors)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.table(ids)
        for layer in self.layers:
            x = x + layer(x)
        return x


def judged(divisors: list[float]) -> TargetReport:
    with WithoutLarge():
        model = Model(4096, 32, divisors).eval()
    ids = torch.randint(0, 50_000, (2, 7))
    settings = Settings(str(Path(__file__).parent))
    (report,) = check_calls([take(model, (ids,), {})], settings).targets
    return report


@pytest.fixture(scope="module")
def right() -> TargetReport:
    return judged([128.0] * 5)


def test_sizes_are_those_of_the_model(right: TargetReport) -> None:
    (site,) = right.sites
    assert (site.d_model, site.num_heads, site.head_dim, site.repeated) == (4096, 32, 128, 5)
    assert site.scale_named == "1/sqrt(head_dim)"
    assert site.pipeline[0].text == "x (2, 7, 4096)"
    assert site.pipeline[-1].text == "W_O (2, 7, 4096)"


def test_the_cross_check_is_made_at_these_sizes(right: TargetReport) -> None:
    (check,) = right.crosscheck
    assert check.verdict == "match"
    assert check.max_abs_error is not None and check.max_abs_error < 1e-12


def test_nothing_is_found_and_what_takes_a_call_is_open(right: TargetReport) -> None:
    assert right.findings == ()
    assert right.status is Status.UNDECIDED
    assert {u.why for u in right.undecided} == {
        "the weights were never made: only single calls of its modules were measured"
    }
    assert "MHA522" in {u.code for u in right.undecided}


def test_a_fault_is_told_at_its_line_with_the_sizes_of_the_model() -> None:
    report = judged([128.0, 4096.0, 128.0])
    (finding,) = report.findings
    assert finding.code == "MHA202"
    assert linecache.getline(__file__, finding.span.line).strip().startswith("scores = q @ k")
    assert "1/sqrt(d_model)" in finding.message and "0.0156" in finding.message
    assert [(s.id, s.repeated) for s in report.sites] == [
        ("Attention.0.0", 2),
        ("Attention.1.0", 1),
    ]
    assert finding.site == "Attention.1.0"


def test_a_model_on_the_meta_device_is_judged_too() -> None:
    with torch.device("meta"):
        model = Model(4096, 32, [128.0, 128.0]).eval()
        ids = torch.zeros(2, 7, dtype=torch.int64)
    (report,) = check_calls([take(model, (ids,), {})], Settings(str(Path.cwd()))).targets
    (site,) = report.sites
    assert (site.d_model, site.num_heads, site.head_dim, site.repeated) == (4096, 32, 128, 2)
    assert report.findings == ()
