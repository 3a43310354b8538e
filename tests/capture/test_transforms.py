"""Compilation, function transforms and gradients inside a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.capture import Recording

Recorded = Callable[..., Recording]
Ops = Callable[[Recording], list[str]]


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


PLAIN = ["linear", "view", "permute", "unbind", "getitem", "getitem", "getitem", "mT", "matmul",
         "div", "softmax", "matmul", "transpose", "flatten", "linear"]  # fmt: skip


class CompiledInside(Attention):
    def forward(self, x: Any) -> Any:
        return torch.compile(super().forward, backend="eager")(x)


class CompiledDecorated(Attention):
    def forward(self, x: Any) -> Any:
        @torch.compile(fullgraph=True)
        def run(x: Any) -> Any:
            return super(CompiledDecorated, self).forward(x)

        return run(x)


@pytest.mark.parametrize("kind", [CompiledInside, CompiledDecorated])
def test_compiling_within_the_call_does_nothing(
    kind: type[nn.Module], recorded: Recorded, ops: Ops
) -> None:
    assert ops(recorded(kind(), torch.randn(2, 6, 32))) == PLAIN


@pytest.mark.filterwarnings("ignore")
def test_compiled_code_runs_eagerly(recorded: Recorded, ops: Ops) -> None:
    module = Attention()
    compiled = torch.compile(module.forward, backend="eager")
    assert ops(recorded(lambda x: compiled(x), torch.randn(2, 6, 32))) == PLAIN


class Gradient(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return torch.func.grad(lambda s: ((s @ k.mT).softmax(-1) @ v).sin().sum())(q)


class AutogradGradient(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        with torch.enable_grad():
            s = q.detach().requires_grad_()
            total = ((s @ k.mT).softmax(-1) @ v).sin().sum()
            return torch.autograd.grad(total, s)[0]


class Jvp(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        pair: Any = torch.func.jvp(lambda s: (s @ k.mT).softmax(-1) @ v, (q,), (k,))
        return pair[0] + pair[1]


@pytest.mark.parametrize("kind", [Gradient, AutogradGradient, Jvp])
def test_differentiation_is_recorded_below_functions(
    kind: type[nn.Module], recorded: Recorded, ops: Ops
) -> None:
    names = ops(recorded(kind().eval(), torch.randn(2, 6, 32)))
    assert names.count("softmax") == 1
    assert "addmm" in names
