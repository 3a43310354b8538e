"""Each node knows the line, the columns and the submodule that it comes from."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mha_lint.capture import Recording
from mha_lint.model.source import Span

Recorded = Callable[..., Recording]
LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def text_of(node: Any, frame: int = -1) -> str:
    """Return the source that a frame's span covers; one line only."""
    span: Span = node.meta["stack"][frame].span
    assert span.line == span.end_line
    return LINES[span.line - 1][span.column - 1 : span.end_column - 1]


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def weights(self, x: Any) -> Any:
        return (self.proj(x) @ x.mT / 2).softmax(dim=-1)

    @traced
    def forward(self, x: Any) -> Any:
        return self.weights(x) @ x


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Head(), Head()])

    def forward(self, x: Any) -> Any:
        first = [h(x) for h in self.heads]
        again = self.heads[0].forward(x)
        return sum(h for h in first) + again


def softmaxes(recording: Recording) -> list[Any]:
    return [n for n in recording.graph.nodes if n.meta["op"] == "softmax"]


def test_spans_cover_the_expression(recorded: Recorded) -> None:
    recording = recorded(Heads(), torch.randn(2, 3, 4))
    node = softmaxes(recording)[0]
    assert text_of(node) == "(self.proj(x) @ x.mT / 2).softmax(dim=-1)"
    assert text_of(node.args[0]) == "self.proj(x) @ x.mT / 2"
    assert text_of(node.args[0].args[0]) == "self.proj(x) @ x.mT"
    assert node.meta["stack"][-1].span.path == __file__
    assert node.meta["stack"][-1].span.column == 16


def test_stack_runs_from_the_outermost_user_frame_in(recorded: Recorded) -> None:
    node = softmaxes(recorded(Heads(), torch.randn(2, 3, 4)))[0]
    functions = [f.function.split(".")[-1] for f in node.meta["stack"]]
    assert functions == ["forward", "<listcomp>", "wrapper", "forward", "weights"]
    assert text_of(node, 0) == "[h(x) for h in self.heads]"


def test_owner_and_call(recorded: Recorded) -> None:
    one, two, again = softmaxes(recorded(Heads(), torch.randn(2, 3, 4)))
    assert [n.meta["module"] for n in (one, two, again)] == ["heads.0", "heads.1", "heads.0"]
    assert {n.meta["module_class"] for n in (one, two, again)} == {"Head"}
    assert len({n.meta["call"] for n in (one, two, again)}) == 3
    scores = one.args[0].args[0]
    assert scores.meta["call"] == one.meta["call"]
    assert scores.args[0].meta["module"] == "heads.0.proj"
    assert scores.args[0].meta["module_class"] == "Linear"


def test_sum_in_a_generator_belongs_to_the_root(recorded: Recorded) -> None:
    recording = recorded(Heads(), torch.randn(2, 3, 4))
    node = recording.outputs[0]
    assert node.meta["op"] == "add"
    assert node.meta["module"] == ""
    assert node.meta["module_class"] == "Heads"
    assert text_of(node) == "sum(h for h in first) + again"


def test_columns_count_characters(recorded: Recorded) -> None:
    def forward(x: Any) -> Any:
        größe = 2.0
        return größe * x.exp() + größe

    node = next(n for n in recorded(forward, torch.randn(2)).graph.nodes if n.meta["op"] == "exp")
    assert text_of(node) == "x.exp()"


def test_call_over_several_lines(recorded: Recorded) -> None:
    def forward(x: Any) -> Any:
        return torch.softmax(
            x,
            dim=-1,
        )

    node = softmaxes(recorded(forward, torch.randn(2)))[0]
    span, first = node.meta["stack"][-1].span, forward.__code__.co_firstlineno
    assert (span.line, span.end_line) == (first + 1, first + 4)
    assert (span.column, span.end_column) == (16, 10)


def test_recursion_counts_as_new_calls(recorded: Recorded) -> None:
    class Twice(nn.Module):
        def forward(self, x: Any, deep: bool = True) -> Any:
            y = x.softmax(-1)
            return self(y, False) if deep else y

    class Derived(Twice):
        def forward(self, x: Any, deep: bool = True) -> Any:
            return super().forward(x, deep)

    one, two = softmaxes(recorded(Derived(), torch.randn(2)))
    assert one.meta["call"] != two.meta["call"]


def test_torch_modules_have_the_frame_of_forward(recorded: Recorded) -> None:
    x = torch.randn(2, 3, 8)
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    node = softmaxes(recorded(module, x, x, x))[0]
    assert len(node.meta["stack"]) == 1
    frame = node.meta["stack"][0]
    assert frame.function == "MultiheadAttention.forward"
    assert frame.span.path == inspect.getsourcefile(nn.MultiheadAttention)
    assert node.meta["module_class"] == "MultiheadAttention"


def test_user_line_of_a_torch_module(recorded: Recorded) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mha = nn.MultiheadAttention(8, 2)

        def forward(self, x: Any) -> Any:
            return self.mha(x, x, x)[0]

    node = softmaxes(recorded(Block(), torch.randn(3, 2, 8)))[0]
    assert text_of(node) == "self.mha(x, x, x)"
    assert node.meta["module"] == "mha"
