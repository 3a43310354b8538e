"""The cross-check on an accelerator: ``--device cuda``, and modules that live there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.facts.conftest import PLAIN, edited

if TYPE_CHECKING:
    from tests.engine.conftest import Check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
BUILD, CALL = "MHA(24, 4)", "torch.randn(2, 5, 24)"


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_the_comparison_runs_on_the_device(device: str, checked: Check) -> None:
    report = checked("a.py::MHA", files={"a.py": PLAIN}, build=BUILD, call=CALL, device=device)
    (row,) = report.targets[0].crosscheck
    assert (row.verdict, row.device, row.dtype) == ("match", "cuda", "float64")


def test_a_fault_is_proved_there(checked: Check) -> None:
    text = edited(PLAIN, ("softmax(dim=-1)", "softmax(dim=-2)"))
    report = checked("a.py::MHA", files={"a.py": text}, build=BUILD, call=CALL, device="cuda")
    (target,) = report.targets
    assert [f.code for f in target.findings] == ["MHA204"]
    assert target.findings[0].confirmed_by
    assert target.crosscheck[0].departs_at == "weights"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("lossy", [False, True])
def test_half_precision_is_measured_there(dtype: str, lossy: bool, checked: Check) -> None:
    logits = "scores / math.sqrt(self.d_k)"
    text = edited(PLAIN, (logits, f"{logits} + 1000.0 - 1000.0")) if lossy else PLAIN
    report = checked(
        "a.py::MHA", files={"a.py": text}, build=BUILD, call=CALL, device="cuda", dtype=dtype
    )
    (row,) = report.targets[0].crosscheck
    assert (row.device, row.dtype) == ("cuda", dtype)
    assert row.verdict == ("mismatch" if lossy else "match")


def test_a_module_that_lives_on_the_device(checked: Check) -> None:
    report = checked(
        "a.py::MHA", files={"a.py": PLAIN}, build=f"{BUILD}.cuda()", call=f"{CALL}.cuda()",
        device="cuda",
    )  # fmt: skip
    assert report.crashes == ()
    (target,) = report.targets
    assert (target.reason, target.findings) == (None, ())
    assert [(c.verdict, c.device) for c in target.crosscheck] == [("match", "cuda")]
