"""What user code may do while it is guarded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mha_lint.targets.guard import guarded


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to go to")
def test_nothing_goes_to_a_gpu_that_is_not_there() -> None:
    with guarded():
        assert torch.zeros(2).cuda().device.type == "cpu"
        assert nn.Linear(2, 2).cuda().weight.device.type == "cpu"
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2).cuda()
