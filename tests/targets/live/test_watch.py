"""What a watcher copies of a running program, and that the program does not notice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mha_lint.targets.live import Seen, StopRun, Watcher

HERE = str(Path(__file__).parent)


def is_user(path: str) -> bool:
    return path == __file__


def line_of(text: str) -> str:
    rows = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, row in enumerate(rows, 1) if row.strip() == text]
    return f"test_watch.py:{number}"


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher(is_user, cwd=HERE)
    before = (nn.Module.__call__, torch.compile, torch.jit.script)
    height = torch._C._len_torch_function_stack()
    yield watcher
    assert (nn.Module.__call__, torch.compile, torch.jit.script) == before
    assert torch._C._len_torch_function_stack() == height


def names(seen: Seen) -> list[tuple[str, int]]:
    assert seen.crashes == ()
    return [(s.name, s.count) for s in seen.snapshots]


class Attention(nn.Module):
    count: torch.Tensor

    def __init__(self, d: int = 16, causal: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.causal = causal
        self.calls: list[int] = []
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        self.calls.append(len(x))
        self.count += 1
        self.weights = (self.q(x) @ self.k(x).mT / 4).softmax(-1)
        return self.o(self.weights @ self.v(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), Attention()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_the_innermost_module_is_copied_once_with_its_count_and_what_holds_it(
    watcher: Watcher,
) -> None:
    stack, x = Stack(), torch.randn(2, 5, 16)
    with watcher:
        stack(x)
        stack(torch.randn(3, 6, 16))
    seen = watcher.seen()
    assert names(seen) == [("Attention", 3)]
    (one,) = seen.snapshots
    assert one.where == line_of("x = x + self.attention(self.norm(x))")
    assert [outer.name for outer in one.enclosing] == ["Block", "Stack"]
    assert torch.equal(one.args[0], stack.blocks[0].norm(x).detach())  # type: ignore[operator]
    assert torch.equal(one.enclosing[1].args[0], x)


def test_the_copy_is_what_the_module_was_before_the_call(watcher: Watcher) -> None:
    module = Attention()
    module.calls.append(7)
    with watcher:
        module(torch.randn(2, 5, 16))
    copy: Any = watcher.seen().snapshots[0].module
    assert copy is not module
    assert copy.calls == [7]
    assert copy.count.item() == 0
    assert not hasattr(copy, "weights")
    assert module.calls == [7, 2]
    assert module.count.item() == 1
    before = copy.q.weight.clone()
    with torch.no_grad():
        module.q.weight.zero_()
    assert torch.equal(copy.q.weight, before)


def test_an_argument_is_kept_as_it_was_before_the_call(watcher: Watcher) -> None:
    class Overwrites(Attention):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x += 1
            return super().forward(x)

    x = torch.zeros(2, 5, 16) + torch.arange(5.0)[:, None]
    before = x.clone()
    with watcher:
        Overwrites()(x)
    assert torch.equal(watcher.seen().snapshots[0].args[0], before)


def test_calls_of_another_kind_are_copied_too(watcher: Watcher) -> None:
    module, x = Attention(), torch.randn(2, 5, 16)
    with watcher:
        module(x)
        module(x, None)
        module(x, torch.zeros(5, 5))
        module(x, mask=torch.zeros(5, 5))
        Attention(causal=True)(x)
        Attention(32)(torch.randn(2, 5, 32))
        module(x)
    assert len(watcher.seen().snapshots) == 6


def test_modules_without_attention_are_not_copied(watcher: Watcher) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.softmax(self.layers(x), -1) * 2

    with watcher:
        Net()(torch.randn(3, 16))
    assert watcher.seen() == Seen(())


def test_a_torch_module_belongs_to_the_user_class_that_calls_it(watcher: Watcher) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0]  # type: ignore[no-any-return]

    with watcher:
        Encoder()(torch.randn(2, 5, 16))
    (one,) = watcher.seen().snapshots
    assert one.name.endswith(".Encoder")


def test_heads_that_get_the_same_input_are_copied_with_what_joins_them(watcher: Watcher) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(Attention() for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([head(x) for head in self.heads], -1)

    with watcher:
        Heads()(torch.randn(2, 5, 16))
    one, two = names(watcher.seen())
    assert one == ("Attention", 2)
    assert two[0].endswith(".Heads")


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    q = q * q.shape[-1] ** -0.5
    return scores(q, k).softmax(dim) @ v


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT


def test_a_function_is_copied_with_the_arguments_that_it_was_called_with(watcher: Watcher) -> None:
    def caller(x: torch.Tensor) -> torch.Tensor:
        return attend(x, x + 1, x + 2, dim=1)

    x = torch.randn(2, 5, 16)
    with watcher:
        result = caller(x)
    (one,) = watcher.seen().snapshots
    assert one.name == "attend"
    assert one.where == line_of("return attend(x, x + 1, x + 2, dim=1)")
    assert torch.equal(one.args[0], x)
    assert one.kwargs == {"dim": 1}
    assert torch.equal(one.module(*one.args, **one.kwargs), result)
    assert [outer.name.rpartition(".")[2] for outer in one.enclosing] == ["caller"]


def test_closures_and_lambdas(watcher: Watcher) -> None:
    scale = 0.25

    def inner(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT * scale).softmax(-1) @ x

    plain: Callable[..., torch.Tensor] = lambda q, k, v: (q @ k.mT).softmax(-1) @ v  # noqa: E731
    x = torch.randn(2, 5, 16)
    with watcher:
        results = [inner(x), plain(x, x, x)]
    seen = watcher.seen().snapshots
    assert [s.name.rpartition(".")[2] for s in seen] == ["inner", "<lambda>"]
    for one, result in zip(seen, results, strict=True):
        assert torch.equal(one.module(*one.args), result)


def test_a_forward_that_is_called_directly(watcher: Watcher) -> None:
    module = Attention()
    with watcher:
        module.forward(torch.randn(2, 5, 16))
    (one,) = watcher.seen().snapshots
    assert one.name == "Attention"
    assert isinstance(one.module, Attention)
    assert one.module.calls == []


def test_attention_without_arguments_is_told_as_not_checked(watcher: Watcher) -> None:
    def flat() -> torch.Tensor:
        x = torch.randn(2, 5, 16)
        return (x @ x.mT).softmax(-1) @ x

    with watcher:
        flat()
    seen = watcher.seen()
    assert seen.snapshots == ()
    (one,) = seen.flat
    assert one.target.endswith(
        "::test_attention_without_arguments_is_told_as_not_checked.<locals>.flat"
    )
    assert one.hint == "put it in a function or nn.Module that takes them as arguments"


def test_a_call_that_raises_is_told_unless_another_one_does_not(watcher: Watcher) -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = (x @ x.mT).softmax(-1) @ x
            if len(x) == 3:
                raise ValueError("three")
            return y

    with watcher, pytest.raises(ValueError, match="three"):
        Picky()(torch.randn(3, 5, 16))
    (one,) = watcher.seen().left_out
    assert one.reason == "the call raised ValueError: three"
    with watcher:
        Picky()(torch.randn(2, 5, 16))
    assert watcher.seen().left_out == ()
    assert len(watcher.seen().snapshots) == 1


def test_calls_inside_vmap_wait_for_one_with_values(watcher: Watcher) -> None:
    module = nn.Sequential(Plain())
    with watcher:
        torch.func.vmap(module)(torch.randn(3, 2, 5, 16))
        assert watcher.seen().snapshots == ()
        module(torch.randn(2, 5, 16))
    assert names(watcher.seen()) == [("Plain", 1)]


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT).softmax(-1) @ x


def test_other_threads_are_watched(watcher: Watcher) -> None:
    def work() -> None:
        Plain()(torch.randn(2, 5, 16))

    with watcher:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [name for name, _ in names(watcher.seen())] == ["Plain"]


def test_a_constant_input_is_replaced_by_numbers(watcher: Watcher) -> None:
    with watcher:
        Plain()(torch.zeros(2, 5, 16))
    (one,) = watcher.seen().snapshots
    assert one.args[0].std() > 0.5
    assert one.notes == ("its input is the same everywhere: random numbers stand in for it",)


def test_autocast_and_defaults_are_noted(watcher: Watcher) -> None:
    with watcher, torch.autocast("cpu", dtype=torch.bfloat16):
        Plain()(torch.randn(2, 5, 16))
    (one,) = watcher.seen().snapshots
    assert one.autocast == (("cpu", torch.bfloat16),)
    assert one.defaults == (torch.float32, torch.device("cpu"))


def test_patience_ends_the_program(watcher: Watcher) -> None:
    module, x = Plain(), torch.randn(2, 5, 16)
    hasty = Watcher(is_user, cwd=HERE, stop_after=4)
    calls = 0
    with hasty, pytest.raises(StopRun):
        for _ in range(10):
            module(x)
            calls += 1
    assert calls == 4


def train(steps: int) -> list[float]:
    torch.manual_seed(0)
    model = Stack()
    mixer = nn.TransformerEncoderLayer(16, 4, batch_first=True)
    optimizer = torch.optim.AdamW([*model.parameters(), *mixer.parameters()], 1e-2)
    losses = []
    for _ in range(steps):
        x = torch.randn(2, 5, 16)
        y = checkpoint(model, x.requires_grad_(), use_reentrant=False)
        loss = (mixer(y) - attend(x, x, x)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mixer.eval()
    with torch.no_grad():
        losses.append(mixer(torch.randn(2, 5, 16)).sum().item())
    return [*losses, torch.rand(1).item()]


def test_the_numbers_of_a_program_are_the_same(watcher: Watcher) -> None:
    plain = train(3)
    with watcher:
        watched = train(3)
    assert watched == plain
    assert ("Attention", 3) in names(watcher.seen())


def test_the_programs_own_modes_see_nothing_of_it(watcher: Watcher) -> None:
    class Count(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    def run() -> int:
        module, x = Attention(), torch.randn(2, 5, 16)
        with Count() as count:
            module(x)
            attend(x, x, x)
        return int(count.calls)

    plain = run()
    with watcher:
        assert run() == plain
