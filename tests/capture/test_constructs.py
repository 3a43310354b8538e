"""What user code does that a recorder must live with: each construct, and that it is seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from mha_lint.capture import Recording, record

Recorded = Callable[..., Recording]
Ops = Callable[[Recording], list[str]]


class Attention(nn.Module):
    """Correct attention, the parts of which the cases below replace."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: Any) -> Any:
        b, t, _ = x.shape
        return self.qkv(x).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)

    def core(self, q: Any, k: Any, v: Any) -> Any:
        return ((q @ k.mT) / self.size**0.5).softmax(-1) @ v

    def merge(self, y: Any) -> Any:
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x: Any) -> Any:
        q, k, v = self.split(x).unbind(0)
        return self.merge(self.core(q, k, v))


PLAIN = ["linear", "view", "permute", "unbind", "getitem", "getitem", "getitem", "mT", "matmul",
         "div", "softmax", "matmul", "transpose", "flatten", "linear"]  # fmt: skip


def test_plain(recorded: Recorded, ops: Ops) -> None:
    assert ops(recorded(Attention(), torch.randn(2, 6, 32))) == PLAIN


class Unpacked(Attention):
    def forward(self, x: Any) -> Any:
        q, k, v = self.split(x)
        return self.merge(self.core(q, k, v))


class Mapped(Attention):
    def forward(self, x: Any) -> Any:
        q, k, v = map(lambda t: t * 1, self.split(x))  # noqa: C417 - map is the point
        return self.merge(self.core(q, k, v))


class Looped(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return torch.stack(
            [super(Looped, self).core(*triple) for triple in zip(q, k, v, strict=True)]
        )


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
        return ((q @ k.mT) / q.shape[-1] ** 0.5).softmax(-1) @ v


class CustomFunction(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        apply: Any = Function.apply
        return apply(q, k, v)


class Checkpointed(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(super().core, q, k, v, use_reentrant=True)


class NewCheckpointed(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(super().core, q, k, v, use_reentrant=False)


class InferenceMode(Attention):
    @torch.inference_mode()
    def forward(self, x: Any) -> Any:
        return super().forward(x)


class NoGradient(Attention):
    @torch.no_grad()
    def forward(self, x: Any) -> Any:
        return super().forward(x)


class AtenCalls(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        aten = torch.ops.aten
        weights = aten._softmax(aten.matmul(q, k.mT) / self.size**0.5, -1, False)
        return aten.matmul.default(weights, v)


class DirectForward(Attention):
    def split(self, x: Any) -> Any:
        b, t, _ = x.shape
        y = self.qkv.forward(x)
        return y.view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)


class OwnSubclass(torch.Tensor):
    """A subclass without behaviour of its own."""


class Subclassed(Attention):
    def forward(self, x: Any) -> Any:
        return super().forward(x.as_subclass(OwnSubclass)).as_subclass(torch.Tensor)


class DeviceContext(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        with torch.device("cpu"):
            mask = torch.full((q.shape[-2],) * 2, -torch.inf).triu(1)
        return ((q @ k.mT) / self.size**0.5 + mask).softmax(-1) @ v


class Autocast(Attention):
    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


class WeightNorm(Attention):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.qkv)


class Hooked(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.qkv.register_forward_hook(lambda module, args, y: y * 2)


def plain_core(q, k, v, size: int):  # type: ignore[no-untyped-def]
    return torch.softmax(q @ k.transpose(-1, -2) / size**0.5, -1) @ v


def script(subject: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(subject)


scripted_core = script(plain_core)


class Scripted(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return scripted_core(q, k, v, self.size)


class Mask(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


class ScriptedModule(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.weights = script(Mask())

    def core(self, q: Any, k: Any, v: Any) -> Any:
        return self.weights(q @ k.mT / self.size**0.5) @ v


class Vmapped(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return torch.vmap(super().core, in_dims=1, out_dims=1)(q, k, v)


class NestedVmap(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        return torch.vmap(torch.vmap(super().core))(q, k, v)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(32, 32, batch_first=True)
        self.lstm = nn.LSTM(32, 32, 2)

    def forward(self, x: Any) -> Any:
        y, _ = self.rnn(x)
        z, (h, _) = self.lstm(y)
        return (z @ y.mT).softmax(-1) @ x + h.sum()


class Rotary(Attention):
    def core(self, q: Any, k: Any, v: Any) -> Any:
        t = torch.arange(q.shape[-2])[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
        turn = torch.polar(torch.ones_like(t), t)
        q, k = (
            torch.view_as_real(
                torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * turn
            ).flatten(-2)
            for x in (q, k)
        )
        return super().core(q, k, v)


class Buffers(Attention):
    cached: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cached", torch.zeros(2, 4, 16, 8))
        self.seen = 0
        self.past: list[Any] = []

    def core(self, q: Any, k: Any, v: Any) -> Any:
        self.seen += 1
        self.past.append(v)
        self.cached[:, :, : k.shape[2]] = k
        return super().core(q, self.cached[:, :, : k.shape[2]], torch.cat(self.past, 2))


CASES = [
    Unpacked, Mapped, Looped, CustomFunction, Checkpointed, NewCheckpointed, InferenceMode,
    NoGradient, AtenCalls, DirectForward, Subclassed, DeviceContext, Autocast, WeightNorm, Hooked,
    Scripted, ScriptedModule, Vmapped, NestedVmap, Recurrent, Rotary, Buffers,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", CASES)
def test_construct(kind: type[nn.Module], recorded: Recorded, ops: Ops) -> None:
    recording = recorded(kind().eval(), torch.randn(2, 6, 32))
    names = ops(recording)
    assert "softmax" in names
    assert {"matmul", "bmm"} & set(names)
    assert not any("tainted" in n.meta for n in recording.graph.nodes)
    # The scores are no constant: the softmax depends on the input.
    softmax = next(n for n in recording.graph.nodes if n.meta["op"] == "softmax")
    reached, pending = set(), [softmax]
    while pending:
        node = pending.pop()
        reached.add(node)
        pending.extend(n for n in node.all_input_nodes if n not in reached)
    assert recording.placeholders[0] in reached


def test_state_that_forward_changes_is_put_back(recorded: Recorded) -> None:
    module = Buffers()
    recording = recorded(module, torch.randn(2, 6, 32))
    for subject in (module, recording.module):
        assert isinstance(subject, Buffers)
        assert subject.seen == 0
        assert subject.past == []
        assert not subject.cached.any()
    setitem = next(n for n in recording.graph.nodes if n.meta["op"] == "setitem")
    assert recording.values[setitem].any()


def test_state_is_put_back_without_copies() -> None:
    module = Buffers()
    module.lock = __import__("threading").Lock()  # cannot be copied
    before = dict(vars(module))
    recording = record(module, (torch.randn(2, 6, 32),), {})
    assert recording.faithful.ok, recording.faithful
    assert recording.module is module
    assert vars(module).keys() == before.keys()
    assert module.seen == 0
    assert module.past == []
    assert not module.cached.any()


def test_eval_that_returns_nothing_does_not_matter(recorded: Recorded) -> None:
    class Silent(Attention):
        def eval(self) -> Any:
            super().eval()

    module = Silent()
    module.eval()
    recorded(module, torch.randn(2, 6, 32))


def test_unused_results_stay_in_the_graph(recorded: Recorded, ops: Ops) -> None:
    class Forgetful(Attention):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            self.out(x)
            return y

    assert ops(recorded(Forgetful(), torch.randn(2, 6, 32))) == [*PLAIN, "linear"]


def test_an_idle_dropout_is_not_its_input(recorded: Recorded, only: Any) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            y = x.sin()
            return y + self.drop(y)

    recording = recorded(Residual().eval(), torch.randn(3))
    add, drop = only(recording, "add"), only(recording, "dropout")
    assert add.args == (only(recording, "sin"), drop)
    assert drop.kwargs == {"p": 0.1, "training": False}


def test_lazy_parameters(recorded: Recorded) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.proj = nn.LazyLinear(4)

        def forward(self, x: Any) -> Any:
            return self.proj(x).softmax(-1)

    module = Lazy()
    recorded(module, torch.randn(3, 8))
    assert module.proj.has_uninitialized_params()


def test_inputs_that_share_memory(recorded: Recorded) -> None:
    def forward(a: Any, b: Any) -> Any:
        a.mul_(2)
        return a + b.sum()

    base = torch.randn(2, 3)
    before = base.clone()
    recorded(forward, base[0], base)
    assert torch.equal(base, before)


def test_einops_becomes_plain_operations(recorded: Recorded) -> None:
    einops = pytest.importorskip("einops")

    def attend(x: Any) -> Any:
        q = einops.rearrange(x, "b t (h d) -> b h t d", h=2)
        w = einops.einsum(q, q, "b h i d, b h j d -> b h i j").softmax(-1)
        return einops.rearrange(w @ q, "b h t d -> b t (h d)")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recording = recorded(attend, torch.randn(2, 3, 4))
    first = next(n for n in recording.graph.nodes if n.meta["op"] in ("permute", "transpose"))
    line = attend.__code__.co_firstlineno + 1
    assert first.meta["stack"][-1].span.line == line
    assert first.meta["stack"][-1].span.path == __file__
