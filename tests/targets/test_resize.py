"""Tests of mha_lint.targets.resize."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mha_lint.targets.rescale import NewSizes, rescale_call
from mha_lint.targets.slots import BuildExpression
from mha_lint.targets.subject import Subject

Open = Callable[..., object]

MHA = """
class MHA(nn.Module):
    def __init__(self, d_model, num_heads, max_len=64):
        super().__init__()
        self.h = num_heads
        self.qkv, self.o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.register_buffer("tri", torch.ones(max_len, max_len).tril().bool())
    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        s = (q @ k.mT / (d // self.h) ** 0.5).masked_fill(~self.tri[:t, :t], -torch.inf)
        if mask is not None:
            s = s.masked_fill(~mask[:, None, None], -1e9)
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
"""


def _subject(opened: Open, *args: object, **kwargs: object) -> Subject:
    subject = opened(*args, **kwargs)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    return subject


def test_everything_changes_and_nothing_coincides(opened: Open) -> None:
    subject = _subject(opened, MHA, "MHA", build="MHA(64, 8)", call="torch.randn(2, 10, 64)")
    other = next(subject.resized())
    assert isinstance(other.module, torch.nn.Module)
    batch, length, width = other.args[0].shape
    heads = other.sizes["num_heads"]
    head_dim = width // heads
    assert heads != 8 and width != 64 and length != 10 and head_dim != 8
    assert len({batch, length, width, heads, head_dim}) == 5
    assert length % heads != 0
    assert (other.how, other.name) == ("stated", "MHA")


def test_the_first_subject_is_left_alone(opened: Open) -> None:
    subject = _subject(opened, MHA, "MHA", build="MHA(64, 8)", call="torch.randn(2, 10, 64)")
    before = [p.clone() for p in subject.module.parameters()]  # type: ignore[union-attr]
    next(subject.resized())
    again = subject.rebuilt()
    for old, now, anew in zip(
        before,
        subject.module.parameters(),  # type: ignore[union-attr]
        again.module.parameters(),  # type: ignore[union-attr]
        strict=True,
    ):
        assert torch.equal(old, now) and torch.equal(old, anew) and now is not anew
    assert torch.equal(subject.args[0], again.args[0])


def test_masks_keep_their_meaning(opened: Open) -> None:
    call = "torch.randn(2, 6, 32), torch.tensor([[True]*6, [True]*4 + [False]*2])"
    subject = _subject(opened, MHA, "MHA", build="MHA(32, 4)", call=call)
    x, mask = next(subject.resized()).args
    assert mask.shape == x.shape[:2]
    assert mask[0].all() and mask[1].sum() == 4


def test_defaults_are_changed_by_name(opened: Open) -> None:
    source = MHA.replace("d_model, num_heads,", "d_model=64, num_heads=8,")
    subject = _subject(opened, source, "MHA", build="MHA()", call="torch.randn(2, 10, 64)")
    other = next(subject.resized())
    assert other.build.startswith("MHA(d_model=")
    assert other.sizes["num_heads"] != 8
    assert other.sizes["max_len"] == 64


@pytest.mark.parametrize(
    ("config", "build"),
    [
        ("@dataclass\nclass Config:\n    d_model: int = 32\n    num_heads: int = 4\n", "Config()"),
        ("class Config:\n    d_model = 32\n    num_heads = 4\n", "Config()"),
        ("", "SimpleNamespace(d_model=32, num_heads=4)"),
        ("", "[(c := SimpleNamespace(d_model=32)), setattr(c, 'num_heads', 4)][0]"),
    ],
)
def test_configs_of_every_kind(opened: Open, config: str, build: str) -> None:
    source = "from dataclasses import dataclass\n" + config + MHA + (
        "class Wrapped(nn.Module):\n"
        "    def __init__(self, cfg):\n"
        "        super().__init__()\n"
        "        self.a = MHA(cfg.d_model, cfg.num_heads)\n"
        "    def forward(self, x):\n"
        "        return self.a(x)\n"
    )  # fmt: skip
    subject = _subject(
        opened, source, "Wrapped", build=f"Wrapped({build})", call="torch.randn(2, 10, 32)"
    )
    assert subject.sizes == {"d_model": 32, "num_heads": 4}
    other = next(subject.resized())
    assert other.sizes["num_heads"] != 4 and other.sizes["d_model"] == other.args[0].shape[-1] != 32


def test_what_cannot_change_stays(opened: Open) -> None:
    source = """
class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.MultiheadAttention(24, 4, batch_first=True)
    def forward(self, x):
        return self.m(x, x, x)[0]
"""
    subject = _subject(opened, source, "Fixed", build="Fixed()", call="torch.randn(3, 7, 24)")
    other = next(subject.resized())
    assert other.args[0].shape == (3, 8, 24)


def test_groups_stay_groups(opened: Open) -> None:
    source = """
class GQA(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.h, self.g, self.d = n_heads, n_kv_heads, dim // n_heads
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, n_kv_heads * self.d)
        self.v, self.o = nn.Linear(dim, n_kv_heads * self.d), nn.Linear(dim, dim)
    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).view(b, t, self.h, self.d).transpose(1, 2)
        k = self.k(x).view(b, t, self.g, self.d).transpose(1, 2).repeat_interleave(self.h // self.g, 1)
        v = self.v(x).view(b, t, self.g, self.d).transpose(1, 2).repeat_interleave(self.h // self.g, 1)
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))
"""
    subject = _subject(opened, source, "GQA", build="GQA(64, 8, 2)", call="torch.randn(2, 6, 64)")
    sizes = next(subject.resized()).sizes
    assert 1 < sizes["n_kv_heads"] < sizes["n_heads"] != 8
    assert sizes["n_heads"] % sizes["n_kv_heads"] == 0


MASKED = """
class Masked(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(mask == 0, -torch.inf)
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))
"""


@pytest.mark.parametrize(
    "call",
    [
        "torch.randn(3, 8, 32), torch.ones(8, 8)",  # T is d_k
        "torch.randn(5, 5, 32), torch.ones(5, 5)",  # B is T
        "torch.randn(3, 4, 32), torch.ones(4, 4)",  # T is h
        "torch.randn(8, 8, 32), torch.ones(8, 1, 8, 8)",  # B, T and d_k are one number
    ],
)
def test_equal_sizes_change_apart(call: str, opened: Open) -> None:
    subject = _subject(opened, MASKED, "Masked", build="Masked(32, 4)", call=call)
    x, mask = next(subject.resized()).args
    batch, length, width = x.shape
    assert batch == subject.args[0].shape[0]
    assert mask.shape[-2:] == (length, length)
    heads = next(subject.resized()).sizes["heads"]
    assert len({batch, length, width, heads, width // heads}) == 5


def test_queries_and_keys_change_apart_where_they_can(opened: Open) -> None:
    source = """
class Cross(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.a = nn.MultiheadAttention(dim, heads, batch_first=True)
    def forward(self, x, y):
        return self.a(x, y, y)[0] PLUS
"""
    call = "torch.randn(2, 6, 32), torch.randn(2, 6, 32)"
    free = _subject(opened, source.replace("PLUS", ""), "Cross", build="Cross(32, 4)", call=call)
    x, y = next(free.resized()).args
    assert 6 != x.shape[1] != y.shape[1] != 6
    bound = _subject(
        opened, source.replace("PLUS", "+ y"), "Cross", build="Cross(32, 4)", call=call
    )
    x, y = next(bound.resized()).args
    assert x.shape == y.shape and x.shape[1] != 6


def test_the_limit_does_not_strike_the_caller(opened: Open) -> None:
    import signal

    subject = _subject(opened, MHA, "MHA", build="MHA(64, 8)", call="torch.randn(2, 10, 64)")
    for _ in subject.resized():
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
        break


def test_slots_have_names_and_roles() -> None:
    def make(d_model: int, num_heads: int, *, dropout: float = 0.1, depth: int = 3) -> None: ...

    expression = BuildExpression("make(64, num_heads=8)", {"make": make})
    assert [(s.name, s.value, s.role, s.passed) for s in expression.slots] == [
        ("d_model", 64, "width", True),
        ("num_heads", 8, "heads", True),
        ("depth", 3, "layers", False),
    ]
    width, heads, depth = expression.slots
    assert expression.with_values({width: 48, heads: 6}) == "make(48, num_heads=6)"
    assert expression.with_values({depth: 2}) == "make(64, num_heads=8, depth=2)"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.randn(2, 10, 64)", "torch.randn(2, 11, 48)"),
        ("torch.randn(10, 64)", "torch.randn(11, 48)"),
        ("torch.randn((2, 64, 10))", "torch.randn((2, 48, 11))"),
        ("torch.randn(2, 8, 10, 7)", "torch.randn(2, 6, 11, 7)"),
        ("torch.randint(0, 10, (2, 10))", "torch.randint(0, 10, (2, 11))"),
        ("torch.ones(10, 10).tril()", "torch.ones(11, 11).tril()"),
        ("torch.zeros(2, 10, dtype=torch.bool)", "torch.zeros(2, 11, dtype=torch.bool)"),
        ("torch.tensor([10, 7])", "torch.tensor([11, 7])"),
        (
            "torch.tensor([[1] * 10, [1] * 7 + [0] * 3])",
            "torch.tensor([[1] * 11, [1] * 7 + [0] * 4])",
        ),
        ("torch.arange(10)[None]", "torch.arange(11)[None]"),
        ("x=torch.randn(2, 10, 64).half() * 300", "x=torch.randn(2, 11, 48).half() * 300"),
        ("A(64, 8)(torch.randn(2, 10, 64))[1]", "A(64, 8)(torch.randn(2, 11, 48))[1]"),
    ],
)
def test_calls_are_rewritten_by_axis(call: str, expected: str) -> None:
    sizes = NewSizes(widths={64: 48}, heads={8: 6}, lengths={10: 11}, batch=2)
    assert rescale_call(call, sizes) == expected


WIDENING = """
class WideningMHA(nn.Module):
    def __init__(self, in_width, width, n_heads):
        super().__init__()
        self.n_heads, self.per_head = n_heads, width // n_heads
        self.to_q, self.to_k = nn.Linear(in_width, width), nn.Linear(in_width, width)
        self.to_v, self.mix = nn.Linear(in_width, width), nn.Linear(width, width)
    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.n_heads, self.per_head).transpose(1, 2)
                   for f in (self.to_q, self.to_k, self.to_v))
        y = (q @ k.mT / self.per_head ** 0.5).softmax(-1) @ v
        return self.mix(y.transpose(1, 2).reshape(b, n, MERGED))
"""


def test_decoupled_widths_that_contradict(opened: Open) -> None:
    subject = _subject(
        opened, WIDENING.replace("MERGED", "c"), "WideningMHA",
        build="WideningMHA(32, 32, 4)", call="torch.randn(2, 6, 32)",
    )  # fmt: skip
    found = {d.change: d for d in subject.decoupled()}
    assert list(found) == [
        "in_width 32 -> 48, width stays 32",
        "width 32 -> 48, in_width stays 32",
    ]
    for one in found.values():
        assert one.subject is None
        assert isinstance(one.error, RuntimeError)
        assert "is invalid for input of size" in str(one.error)


def test_decoupled_widths_that_fit(opened: Open) -> None:
    subject = _subject(
        opened, WIDENING.replace("MERGED", "-1"), "WideningMHA",
        build="WideningMHA(32, 32, 4)", call="torch.randn(2, 6, 32)",
    )  # fmt: skip
    for one in subject.decoupled():
        assert one.error is None and one.subject is not None
    wide_in, wide_inside = (d.subject for d in subject.decoupled())
    assert wide_in is not None and wide_in.args[0].shape == (2, 6, 48)
    assert wide_inside is not None and wide_inside.args[0].shape == (2, 6, 32)


def test_nothing_coincides(opened: Open) -> None:
    subject = _subject(opened, MHA, "MHA", build="MHA(64, 8)", call="torch.randn(2, 10, 64)")
    assert subject.decoupled() == []
