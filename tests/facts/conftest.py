"""A right module as text, edits of it that change one thing, and the facts measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from mha_lint.capture import record
from mha_lint.facts.bench import Bench
from mha_lint.facts.subject import Measurement, measure
from mha_lint.model.facts import Known, NotApplicable, SiteFacts, SubjectFacts, Unknown
from mha_lint.model.report import NotChecked
from mha_lint.model.source import Span
from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

HEADER = """\
import math

import torch
import torch.nn.functional as F
from torch import nn


"""
PLAIN = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.d_k = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(self.d_k)
        weights = scores.softmax(dim=-1)
        context = weights @ v
        merged = context.transpose(1, 2).reshape(B, T, C)
        return self.out_proj(merged)
"""
BUILD = "MHA(24, 4)"
CALL = "torch.randn(2, 5, 24)"
"""All of B 2, T 5, h 4, d_k 6, d_model 24 differ."""


@dataclass(frozen=True)
class Case:
    """One recorded module and its text; facts are measured when they are asked for."""

    text: str
    subject: Subject
    bench: Bench

    @cached_property
    def measured(self) -> Measurement:
        return measure(self.subject, self.bench)

    @property
    def facts(self) -> SubjectFacts:
        return self.measured.facts

    @property
    def site(self) -> SiteFacts:
        (site,) = self.facts.sites
        return site

    def line(self, text: str) -> int:
        """Return the number of the one line that holds `text`."""
        (found,) = [n for n, line in enumerate(self.text.splitlines(), 1) if text in line]
        return found

    def marked(self, span: Span | None) -> str:
        """Return the source that `span` covers, "" for none."""
        if span is None:
            return ""
        assert Path(span.path).name == "attention.py"
        lines = self.text.splitlines()
        assert span.end_line == span.line, span
        return lines[span.line - 1][span.column - 1 : span.end_column - 1]


class Measure(Protocol):
    def __call__(
        self,
        *edits: tuple[str, str],
        text: str = PLAIN,
        build: str = BUILD,
        call: str = CALL,
        name: str | None = None,
    ) -> Case: ...


def edited(text: str, *edits: tuple[str, str]) -> str:
    """Return `text` with every edit made; each must apply exactly once."""
    for old, new in edits:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="session")
def known_cases() -> dict[tuple[str, str, str], Case]:
    return {}


@pytest.fixture
def measured(
    known_cases: dict[tuple[str, str, str], Case], tmp_path_factory: pytest.TempPathFactory
) -> Measure:
    """Return a function that measures an edited module; equal ones are measured once."""
    torch.set_num_threads(1)

    def run(
        *edits: tuple[str, str],
        text: str = PLAIN,
        build: str = BUILD,
        call: str = CALL,
        name: str | None = None,
    ) -> Case:
        whole = HEADER + edited(text, *edits)
        key = whole, build, call
        if key not in known_cases:
            file = tmp_path_factory.mktemp("case") / "attention.py"
            file.write_text(whole)
            known_cases[key] = measure_file(file, name or build.partition("(")[0], build, call)
        return known_cases[key]

    return run


def measure_file(file: Path, name: str, build: str, call: str) -> Case:
    """Record the class or function `name` of `file`."""
    spec = TargetSpec(text=file.name, path=str(file), qualname=name, build=build, call=call)
    subject = open_subject(spec, timeout=20)
    assert not isinstance(subject, NotChecked), subject
    with subject.environment():
        recording = record(
            subject.module, subject.args, subject.kwargs, argument_names=subject.argument_names
        )
    assert recording.faithful.ok, recording.faithful
    return Case(file.read_text(), subject, Bench.of(recording))


@pytest.fixture
def known() -> Callable[[Any], Any]:
    """Return the value of a fact, which must be known."""

    def value(fact: Any) -> Any:
        assert isinstance(fact, Known), fact
        return fact.value

    return value


@pytest.fixture
def why() -> Callable[[Any], tuple[str, str]]:
    """Return the kind and the reason of a fact that has no value."""

    def reason(fact: Any) -> tuple[str, str]:
        assert isinstance(fact, NotApplicable | Unknown), fact
        return type(fact).__name__, fact.why

    return reason
