"""Where a class sets what its parameters hold, and whole statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.facts.assigned import fills, freezes, set_at, statement_at

TEXT = """\
import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.raw = nn.Parameter(torch.zeros(2, 2))

    def forward(self, x):
        return self.lin(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Inner()
        self.b = nn.Linear(2, 2)
        self.c = nn.Linear(2, 2)
        nn.init.zeros_(self.b.weight)
        for p in self.c.parameters():
            p.requires_grad = False
        self.b.requires_grad_(False)

    def forward(self, x):
        return (
            self.b(x)
            + 1
        )


class Swept(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.Linear(2, 2)
        for p in self.parameters():
            nn.init.constant_(p, 0.5)

    def forward(self, x):
        return self.d(x)
"""


@pytest.fixture
def namespace(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "assigned.py"
    file.write_text(TEXT)
    scope: dict[str, Any] = {"torch": torch, "__name__": "assigned"}
    exec(compile(TEXT, str(file), "exec"), scope)
    scope["path"] = str(file)
    return scope


def text_at(span: Any) -> str:
    assert span is not None
    line: str = TEXT.splitlines()[span.line - 1]
    return line.strip()


@pytest.mark.parametrize(
    ("cls", "name", "sets", "expected"),
    [
        ("Outer", "b.weight", fills, "nn.init.zeros_(self.b.weight)"),
        ("Outer", "b.weight", freezes, "self.b.requires_grad_(False)"),
        ("Outer", "c.weight", freezes, "p.requires_grad = False"),
        ("Outer", "c.weight", fills, "self.c = nn.Linear(2, 2)"),
        ("Outer", "a.raw", fills, "self.raw = nn.Parameter(torch.zeros(2, 2))"),
        ("Outer", "a.lin.weight", fills, "self.lin = nn.Linear(2, 2)"),
        ("Swept", "d.weight", fills, "nn.init.constant_(p, 0.5)"),
    ],
)
def test_where_a_parameter_is_set(
    cls: str, name: str, sets: Any, expected: str, namespace: dict[str, Any]
) -> None:
    module: nn.Module = namespace[cls]()
    assert text_at(set_at(module, name, sets)) == expected


def test_nothing_to_look_in() -> None:
    assert set_at(None, "b.weight", fills) is None


def test_the_statement_around_a_line(namespace: dict[str, Any]) -> None:
    first = TEXT.splitlines().index("            + 1") + 1
    span = statement_at(namespace["path"], first)
    assert text_at(span) == "return ("
    assert (span.column, span.end_line) == (9, first + 1)
    assert statement_at(namespace["path"], 999).line == 999
