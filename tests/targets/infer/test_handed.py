"""Tests of mha_lint.targets.infer.handed: constructors that take layers, tables and kinds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from mha_lint.targets.subject import Subject

ATTEND = """
def attend(q, k, v):
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v
"""

SOURCES = {
    "a layer that is told by what is read of it": (
        """
        class Adapted(nn.Module):
            def __init__(self, base, rank_dim):
                super().__init__()
                self.base = base
                wide = base.in_features
                self.down, self.up = nn.Linear(wide, rank_dim), nn.Linear(rank_dim, base.out_features)
                self.to_k = nn.Linear(wide, wide)
            def forward(self, x):
                q = self.base(x) + self.up(self.down(x))
                return attend(q, self.to_k(x), x)
        """,
        "base=nn.Linear(24, 24)",
    ),
    "a layer that is told by the type of its weights": (
        """
        class Wrapped(nn.Module):
            def __init__(self, inner, size):
                super().__init__()
                self.inner = inner
                self.to_k = nn.Linear(size, size).to(inner.weight.dtype)
            def forward(self, x):
                return attend(self.inner(x), self.to_k(x), x)
        """,
        "inner=nn.Linear(24, 24)",
    ),
    "an enum by the value of a member": (
        """
        import enum
        class Order(enum.Enum):
            BEFORE = "before"
            AFTER = "after"
        class Ordered(nn.Module):
            def __init__(self, dim, where):
                super().__init__()
                self.where = Order(where)
                self.to_q, self.to_k = nn.Linear(dim, dim), nn.Linear(dim, dim)
                self.norm = nn.LayerNorm(dim)
            def forward(self, x):
                if self.where is Order.BEFORE:
                    x = self.norm(x)
                return attend(self.to_q(x), self.to_k(x), x)
        """,
        "where='before'",
    ),
    "a key of a table of the file": (
        """
        SLOPES = {"steep": 2.0, "flat": 0.5}
        class Sloped(nn.Module):
            def __init__(self, dim, profile):
                super().__init__()
                self.to_q, self.to_k = nn.Linear(dim, dim), nn.Linear(dim, dim)
                self.profile = profile
            def forward(self, x):
                return attend(self.to_q(x), self.to_k(x), x) * SLOPES[self.profile]
        """,
        "profile='steep'",
    ),
    "configs of which one entry is read, by helpers": (
        """
        class Half(nn.Module):
            def __init__(self, size_cfg, drop_cfg, shape_cfg):
                super().__init__()
                self.to_q = nn.Linear(size_cfg.hidden_size, size_cfg.hidden_size)
                self.to_k = nn.Linear(size_cfg.hidden_size, size_cfg.hidden_size)
                self.drop = nn.Dropout(drop_cfg.attention_dropout)
        class Whole(Half):
            def __init__(self, size_cfg, drop_cfg, shape_cfg):
                super().__init__(size_cfg, drop_cfg, shape_cfg)
                self.parts = shape_cfg.parts
                self.scales = nn.Parameter(torch.ones(len(shape_cfg.parts)))
            def forward(self, x):
                for i, _ in enumerate(self.parts):
                    x = x * self.scales[i] * (self.parts[i] > 0)
                return self.drop(attend(self.to_q(x), self.to_k(x), x))
        """,
        "shape_cfg=SimpleNamespace(parts=[2, 2])",
    ),
    "what the base takes beside what is its own": (
        """
        class Sized(nn.Module):
            def __init__(self, *, channels, rows):
                super().__init__()
                self.to_q, self.to_k = nn.Linear(channels, channels), nn.Linear(channels, channels)
                self.place = nn.Parameter(torch.zeros(64, channels))
                self.rows = rows
        class Framed(Sized):
            def __init__(self, kernel=3, **kwargs):
                super().__init__(**kwargs)
                self.kernel = kernel
            def forward(self, x):
                x = x + self.place[: x.shape[1]]
                return attend(self.to_q(x), self.to_k(x), x)
        """,
        "channels=24, rows=",
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_it_is_built(name: str, opened: Callable[..., object]) -> None:
    source, expected = SOURCES[name]
    target = source.rpartition("        class ")[2].partition("(")[0]
    subject = opened(ATTEND.replace("\n", "\n        ") + source, target)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert expected in subject.build
    assert isinstance(subject.module, nn.Module)


def test_a_search_in_which_nothing_can_be_built_ends(opened: Callable[..., object]) -> None:
    outcome = opened(
        """
        class Odd(nn.Module):
            def __init__(self, a, b, c, d, e, f, g, words):
                super().__init__()
                for one in (a, b, c, d, e, f, g):
                    self.kept = [one]
                raise LookupError(f"{words} of {a}, {b}, {c}, {d}, {e}, {f}, {g} is in no list")
            def forward(self, x):
                return x
        """,
        "Odd",
        timeout=20.0,
    )
    assert "LookupError" in getattr(outcome, "reason", "")
