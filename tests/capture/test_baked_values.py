"""Values that leave torch and come back are found out; constants are not suspected."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mha_lint.capture import Recording, record

Recorded = Callable[..., Recording]


class Attention(nn.Module):
    """Correct attention, the core of which the cases below replace."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def core(self, q: Any, k: Any, v: Any) -> Any:
        return ((q @ k.mT) / self.size**0.5).softmax(-1) @ v

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        return self.out(self.core(q, k, v).transpose(1, 2).flatten(2))


class NumpyTrip(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.mT / self.size**0.5).numpy()
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return torch.from_numpy(e / e.sum(-1, keepdims=True)) @ v


class ItemScale(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.mT
        return (scores / scores.abs().max().item()).softmax(-1) @ v


class ListMask(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        keep = (q.sum((1, 2, 3)) > 0).tolist()
        return (
            super().core(q, k, v) * torch.tensor([float(x) + 1 for x in keep])[:, None, None, None]
        )


class InThread(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(super().core, q, k, v).result()


class Hidden(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return super().core(q, k, v)


@pytest.mark.parametrize("kind", [NumpyTrip, ItemScale, ListMask, InThread, Hidden])
def test_baked_values_are_found_out(kind: type[nn.Module]) -> None:
    recording = record(kind().eval(), (torch.randn(2, 6, 32),), {})
    assert not recording.faithful.ok
    assert recording.faithful.max_error > 1e-3
    assert "on fresh inputs" in recording.faithful.why
    tainted = [n.meta["op"] for n in recording.graph.nodes if "tainted" in n.meta]
    unseen = kind in (NumpyTrip, InThread, Hidden)
    assert (tainted[-1:] == ["linear"]) is unseen  # and so is all that follows


class NumpyConstant(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        t = q.shape[-2]
        mask = torch.from_numpy(np.triu(np.ones((t, t)), 1)).bool()
        more = torch.as_tensor(np.arange(8, dtype=np.float32))
        return super().core(q.masked_fill(mask[:, :1], 0.0), k, v + more)


def test_numpy_constants_are_constants(recorded: Recorded) -> None:
    recording = recorded(NumpyConstant().eval(), torch.randn(2, 6, 32))
    constants = {n.meta["constant"] for n in recording.graph.nodes if "constant" in n.meta}
    assert constants == {"torch.from_numpy", "torch.as_tensor"}
