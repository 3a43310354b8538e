"""Recordings of modules on an accelerator, and replays of one recording on either device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mha_lint.capture import Replay, record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


class Masked(nn.Module):
    """Makes tensors on its input's device, and one by name."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1).bool()
        scores = (q @ k.mT / 8**0.5).masked_fill(hidden, float("-inf"))
        context: torch.Tensor = scores.softmax(-1) @ v
        return context


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_module_on_the_device_is_recorded(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Masked().to("cuda", dtype)
    recording = record(module, (torch.randn(2, 5, 8, device="cuda", dtype=dtype),), {})
    assert recording.faithful.ok, recording.faithful.why
    (output,) = recording.outputs
    assert recording.values[output].device.type == "cuda"


@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_a_recording_is_replayed_on_either_device(home: str) -> None:
    torch.manual_seed(0)
    module = Masked().to(home)
    recording = record(module, (torch.randn(2, 5, 8, device=home),), {})
    (output,) = recording.outputs
    here, there = (Replay(recording, device=d).base(output) for d in ("cpu", "cuda"))
    assert (here.device.type, there.device.type) == ("cpu", "cuda")
    assert here.dtype == there.dtype == torch.float64
    assert float((here - there.cpu()).abs().max()) < 1e-12
