"""Where a module assigns an attribute, and the source of a class, found without `inspect`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

from mha_lint.facts.classes import class_sources, function_source
from mha_lint.facts.declaration import declared_at
from mha_lint.model.source import Span

TEXT = """\
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)
        self.v: nn.Module = nn.Linear(4, 4)
        self.register_parameter("w", nn.Parameter(torch.ones(4, 4)))
        self.add_module("extra", nn.Linear(4, 4))


class Layer(Base):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(4, 4)

    def forward(self, x):
        return self.own(x)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Layer(), Layer()])
        self.tail = nn.Sequential(Layer())

    def forward(self, x):
        return self.blocks[0](x)


def apart(q, k):
    return q @ k
"""

Load = Callable[[], ModuleType]


@pytest.fixture
def made(tmp_path: Path) -> ModuleType:
    file = tmp_path / "made.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("made_for_declaration", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "made_for_declaration" not in sys.modules
    return module


def shown(span: Span | None) -> str:
    if span is None:
        return ""
    line = TEXT.splitlines()[span.line - 1]
    assert span.end_line == span.line
    return line[span.column - 1 : span.end_column - 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.weight", "self.own = nn.Linear(4, 4)"),
        ("q.weight", "self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)"),
        ("k.bias", "self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)"),
        ("v.weight", "self.v: nn.Module = nn.Linear(4, 4)"),
        ("w", 'self.register_parameter("w", nn.Parameter(torch.ones(4, 4)))'),
        ("extra.weight", 'self.add_module("extra", nn.Linear(4, 4))'),
        ("nothing.weight", ""),
    ],
)
def test_of_a_layer(name: str, text: str, made: ModuleType) -> None:
    assert shown(declared_at(made.Layer(), name)) == text


def test_the_innermost_class_of_the_user_is_asked(made: ModuleType) -> None:
    stack = made.Stack()
    assert shown(declared_at(stack, "blocks.1.own.weight")) == "self.own = nn.Linear(4, 4)"
    assert shown(declared_at(stack, "tail.0.q.weight")).startswith("self.q, self.k")
    assert shown(declared_at(stack, "blocks")) == (
        "self.blocks = nn.ModuleList([Layer(), Layer()])"
    )


def test_an_element_is_found_by_its_name(made: ModuleType) -> None:
    stack = made.Stack()
    (first, _) = stack.blocks
    stack.blocks = nn.ModuleDict({"7": first})
    assert shown(declared_at(stack, "blocks.7.own.weight")) == "self.own = nn.Linear(4, 4)"


def test_of_nothing(made: ModuleType) -> None:
    assert declared_at(None, "own.weight") is None
    assert declared_at(nn.Linear(2, 2), "weight") is None


def test_sources_come_with_the_bases(made: ModuleType) -> None:
    found = class_sources(made.Layer)
    assert [source.node.name for source in found] == ["Layer", "Base"]
    assert Path(found[0].path).name == "made.py"
    assert (found[0].node.lineno, found[1].node.lineno) == (14, 5)
    assert found[0].text.startswith("class Layer(Base):\n")
    assert found[0].text.rstrip().endswith("return self.own(x)")
    assert class_sources(nn.Linear) == []


def test_source_of_a_function(made: ModuleType) -> None:
    found = function_source(made.apart)
    assert found is not None
    assert (found.node.name, found.node.lineno) == ("apart", 33)
    assert found.text.rstrip() == "def apart(q, k):\n    return q @ k"
    assert function_source(len) is None
