"""A recording leaves the process as it found it, also when the call raises."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._functorch.apis as vmap_apis
import torch.nn.functional as F
from torch import nn

from mha_lint.capture import CaptureError, record
from mha_lint.capture.environment import prepare_environment


def snapshot() -> dict[str, Any]:
    return {
        "seed": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[index]
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fastpath": torch.backends.mha.get_fastpath_enabled(),
        "inference": torch._C._InferenceMode,
        "patches": [getattr(F, "has_torch_function"), torch.from_numpy,  # noqa: B009
                    getattr(F, "_get_softmax_dim"), getattr(vmap_apis, "vmap_impl")],  # noqa: B009
        "script": torch._C.ScriptFunction.__call__,
        "modes": torch._C._len_torch_function_stack(),
        "flash": torch._C._get_flash_sdp_enabled(),
    }  # fmt: skip


def leaky(x: Any) -> Any:
    torch.manual_seed(99)
    random.seed(3)
    np.random.seed(4)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(True)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.backends.mha.set_fastpath_enabled(True)
    return x * 2


def leaky_and_raising(x: Any) -> Any:
    leaky(x)
    raise ValueError("no such head")


def leaky_and_leaving(x: Any) -> Any:
    leaky(x)
    sys.exit(3)


def leaky_in_vmap(x: Any) -> Any:
    return torch.vmap(leaky_and_raising)(x)


def leaky_device(x: Any) -> Any:
    torch.set_default_device("meta")
    return x * 2


@pytest.mark.parametrize(
    "function", [leaky, leaky_and_raising, leaky_and_leaving, leaky_in_vmap, leaky_device]
)
def test_global_state_is_restored(function: Callable[[Any], Any]) -> None:
    random.seed(0)
    x = torch.randn(3, 2)
    before = snapshot()
    try:
        record(function, (x,), {})
    except CaptureError:
        assert function not in (leaky, leaky_device)
    assert snapshot() == before


def test_error_carries_the_users_exception() -> None:
    with pytest.raises(CaptureError) as caught:
        record(leaky_and_raising, (torch.randn(2),), {})
    assert caught.value.reason == "the call failed: ValueError: no such head"
    assert isinstance(caught.value.exception, ValueError)
    traceback, names = caught.value.exception.__traceback__, []
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert names[-1] == "leaky_and_raising"


def test_leaving_the_process_is_an_error() -> None:
    with pytest.raises(CaptureError, match="SystemExit: 3"):
        record(leaky_and_leaving, (torch.randn(2),), {})


def test_interrupts_pass_through() -> None:
    def interrupted(x: Any) -> Any:
        raise KeyboardInterrupt

    x = torch.randn(2)
    before = snapshot()
    with pytest.raises(KeyboardInterrupt):
        record(interrupted, (x,), {})
    assert snapshot() == before


def test_train_mode_and_module_are_kept() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    recording = record(module, (torch.randn(8, 4),), {})
    assert recording.faithful.ok
    drop = next(n for n in recording.graph.nodes if n.meta["op"] == "dropout")
    assert drop.kwargs == {"p": 0.5, "training": True}
    assert module.training
    assert recording.module is not module


def test_encoder_fast_path_is_off() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    recording = record(layer, (torch.randn(2, 3, 8),), {})
    assert recording.faithful.ok
    assert "softmax" in [n.meta["op"] for n in recording.graph.nodes]


def test_environment_is_prepared_without_torch() -> None:
    variables: dict[str, str] = {}
    prepare_environment(variables)
    assert variables == {"PYTORCH_JIT": "0"}
    own = {"PYTORCH_JIT": "1"}
    prepare_environment(own)
    assert own == {"PYTORCH_JIT": "1"}
    code = (
        "import sys; from mha_lint.capture.environment import prepare_environment as p; p(); "
        "import os; print('torch' in sys.modules, os.environ['PYTORCH_JIT'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0"]
