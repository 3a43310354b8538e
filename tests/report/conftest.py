"""One sample report, with everything that a report can hold, and the source that it is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mha_lint.model.contract import ContractEntry
from mha_lint.model.finding import Crash, Finding, Label, Severity, Undecided
from mha_lint.model.report import (
    Cost,
    CrossCheck,
    PipelineStep,
    RunReport,
    SiteReport,
    Status,
    TargetReport,
)
from mha_lint.model.source import Span
from mha_lint.report.view import View

SOURCE = """\
import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, _ = x.shape
        Q = self.q_proj(x).view(b, t, self.h, self.d_k).transpose(1, 2)
        K = self.k_proj(x).view(b, t, self.h, self.d_k).transpose(1, 2)
        V = self.v_proj(x).view(b, t, self.h, self.d_k).transpose(1, 2)

        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)
        # normalise
        weights = torch.softmax(scores, dim=-2)
        heads = weights @ V
        return self.out_proj(heads.transpose(1, 2).reshape(b, t, self.h * self.d_k))
"""

WRONG_AXIS = Finding(
    code="MHA204",
    rule="wrong-softmax-axis",
    severity=Severity.ERROR,
    message="The softmax normalises over the queries, but the keys are summed with V.",
    span=Span("attention.py", 24, 19, 24, 48),
    site="MultiHeadAttention.0",
    here="normalises over queries: axis 2 of (B, h, T_q, T_k)",
    why="one query's weights over the keys should sum to 1; here they sum to 0.24 ... 2.91",
    help="softmax(scores, dim=-1)",
    evidence=(
        "changing one score moves the weights of all queries at that key, and those of no other "
        "key",
    ),
    labels=(
        Label(
            Span("attention.py", 25, 17, 25, 28), "but the keys, axis 3, are what is summed here"
        ),
    ),
    confirmed_by="output equals attention with the softmax over queries (max difference 3e-16)",
    fingerprint="0a1b2c",
)

SITE = SiteReport(
    id="MultiHeadAttention.0",
    module="",
    line=24,
    kind="self",
    d_model=64,
    num_heads=8,
    num_kv_heads=8,
    head_dim=8,
    v_dim=8,
    scale_value=0.3535533905932738,
    scale_named="1/sqrt(head_dim)",
    softmax_axis="queries",
    output_projection=True,
    pipeline=(
        PipelineStep("x (2, 10, 64)"),
        PipelineStep("q k v (2, 8, 10, 8)"),
        PipelineStep("scores (2, 8, 10, 10)"),
        PipelineStep("softmax over queries", bad=True),
        PipelineStep("context"),
        PipelineStep("W_O (2, 10, 64)"),
    ),
    cost=Cost(16640, 491520, 25600, 25600, 163840, 706560),
)


@pytest.fixture
def finding() -> Finding:
    return WRONG_AXIS


@pytest.fixture
def view(tmp_path: Path) -> View:
    (tmp_path / "attention.py").write_text(SOURCE, encoding="utf-8")
    return View(str(tmp_path))


@pytest.fixture
def sample() -> RunReport:
    faulty = TargetReport(
        target="attention.py::MultiHeadAttention",
        path="attention.py",
        class_name="MultiHeadAttention",
        line=7,
        status=Status.UNDECIDED,
        seconds=0.041,
        sites=(SITE,),
        findings=(
            WRONG_AXIS,
            Finding(
                code="MHA109",
                rule="unused-computation",
                severity=Severity.WARNING,
                message="A suppressed finding, which no reader sees and no exit code counts.",
                span=Span("attention.py", 14, 9, 14, 52),
                fingerprint="3d4e5f",
                suppressed=True,
            ),
        ),
        undecided=(
            Undecided("MHA103", None, "no other size of (d_model, num_heads) could be built"),
            Undecided("MHA113", None, "no other size of (d_model, num_heads) could be built"),
            Undecided("MHA202", "MultiHeadAttention.0", "the heads are mixed before the softmax"),
        ),
        contract=(ContractEntry("causal", False, "no name says so"),),
        crosscheck=(
            CrossCheck(
                "MultiHeadAttention.0", "mismatch", "weights", "cpu", "float64", 0.4, 1e-12,
                "softmax over queries",
            ),
        ),
        notes=(
            "built as MultiHeadAttention(64, 8), called with torch.randn(2, 10, 64) (inferred)",
            "the statement on line 31 was skipped: it trains the model",
        ),
    )  # fmt: skip
    decoder = SiteReport(
        id="DecoderLayer.1", module="cross", line=40, kind="cross", d_model=64, num_heads=8,
        num_kv_heads=2, head_dim=8, v_dim=16, scale_value=None, mask="causal", repeated=6,
    )  # fmt: skip
    clean = TargetReport(
        target="decoder.py::DecoderLayer",
        path="decoder.py",
        class_name="DecoderLayer",
        line=12,
        status=Status.CHECKED,
        seconds=0.102,
        sites=(SiteReport("DecoderLayer.0", "self", 24, "self", 64, 8, 8, 8, 8), decoder),
        crosscheck=(
            CrossCheck("DecoderLayer.0", "match", None, "cpu", "float64", 2e-16, 1e-12),
            CrossCheck("DecoderLayer.1", "skipped", explanation="the values are convolved"),
        ),
    )
    failed = TargetReport(
        target="models/vit.py::Attention",
        path="models/vit.py",
        class_name="Attention",
        line=8,
        status=Status.FAILED,
        reason="cannot be built: __init__() needs window_size, and no value for it was found",
        hint='pass --build "Attention(dim=64, window_size=...)"',
        detail="Traceback: ...\nTypeError: missing window_size",
    )
    empty = TargetReport(
        target="router.py::Router", path="router.py", class_name="Router", line=3,
        status=Status.NO_ATTENTION, reason="no scores between positions",
    )  # fmt: skip
    return RunReport(
        version="0.1.0",
        torch="2.13.0",
        targets=(faulty, clean, failed, empty),
        crashes=(Crash("rule MHA105", "x.py::X", "KeyError: 'merge'", "Traceback: ..."),),
        notes=("torch is older than what mha-lint was tested with",),
        seconds=1.94,
    )


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Return a comparison with a file of ``golden/``; delete the file to have it written anew."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            pytest.fail(f"{path} was missing; it is written now: read it, then run again")
        assert text == path.read_text(encoding="utf-8")

    return compare
