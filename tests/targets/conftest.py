"""What the tests of targets share: write a source, open it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

Write = Callable[..., Path]
Book = Callable[..., Path]
Open = Callable[..., Subject | NotChecked]

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn
"""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a source below the test's own folder; ``head`` puts the usual imports on top."""

    def write_(source: str, name: str = "attention.py", *, head: bool = True) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        body = textwrap.dedent(source).lstrip("\n")
        path.write_text((HEAD.lstrip("\n") if head else "") + body, encoding="utf-8")
        return path

    return write_


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """Write a notebook below the test's own folder; a cell that begins with ``#md`` is text."""

    def write_(*cells: str, name: str = "book.ipynb", **metadata: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook(*cells, **metadata)), encoding="utf-8")
        return path

    return write_


def notebook(*cells: str, **metadata: Any) -> dict[str, Any]:
    """Return a notebook of these cells, as nbformat 4 writes it."""
    made: list[dict[str, Any]] = []
    for text in cells:
        cell: dict[str, Any] = {"cell_type": "markdown", "metadata": {}, "source": text}
        if not text.startswith("#md"):
            cell |= {"cell_type": "code", "outputs": [], "execution_count": None}
        made.append(cell)
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}


@pytest.fixture
def opened(write: Write) -> Open:
    """Write a source and open one class of it; further arguments go into the spec."""

    def open_(
        source: str,
        qualname: str | None = None,
        *,
        build: str | None = None,
        call: str | None = None,
        timeout: float = 20.0,
    ) -> Subject | NotChecked:
        path = str(write(source))
        spec = TargetSpec(text=path, path=path, qualname=qualname, build=build, call=call)
        return open_subject(spec, timeout=timeout)

    return open_
