"""Flags without which nothing attends."""

from __future__ import annotations

from typing import Any

from torch import nn

from mha_lint.targets.infer.guarded import waking_flags


class Sleeps(nn.Module):
    mixed = deep = False

    def forward(self, x: Any) -> Any:
        if self.mixed:
            x = self.blend(x)
        if self.deep:
            x = x + 1
        return x

    def blend(self, x: Any) -> Any:
        return (x @ x.mT).softmax(-1) @ x


class Awake(nn.Module):
    mixed = False

    def forward(self, x: Any) -> Any:
        if self.mixed:
            x = x.softmax(-1)
        return (x @ x.mT).softmax(-1) @ x


def test_a_flag_that_guards_all_attention_wakes_it() -> None:
    assert waking_flags(Sleeps) == {"mixed"}


def test_no_flag_where_attention_runs_anyway() -> None:
    assert waking_flags(Awake) == frozenset()
    assert waking_flags(len) == frozenset()
