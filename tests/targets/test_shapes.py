"""Tests of mha_lint.targets.shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_lint.model.report import NotChecked
from mha_lint.model.target import ShapeProblem
from mha_lint.targets.shapes import explain_shape_error

Open = Callable[..., object]

SOURCE = """
class Views(nn.Module):
    def __init__(self, d_model, num_heads, merged=None):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.merged = merged
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q = q.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        k = k.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        v = v.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(B, T, self.merged or -1))

class OpenView(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q = heads, nn.Linear(dim, dim)
    def forward(self, x):
        b, n = x.shape[:2]
        q = self.q(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        return (q @ q.mT).softmax(-1) @ q

class Unflattens(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q = heads, nn.Linear(dim, dim)
    def forward(self, x):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return (q @ q.mT).softmax(-1) @ q

class Asserts(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        assert d_model % num_heads == 0, "must divide"

class Raises(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError("bad heads")

class Product(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == embed_dim, "bad product"

class Library(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)

class Drops(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d_k = heads, dim // heads
        self.q = nn.Linear(dim, heads * self.d_k)
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
    def attend(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.d_k).transpose(1, 2)
        return ((q @ q.mT).softmax(-1) @ q).transpose(1, 2).flatten(2)
    def forward(self, x, how="project"):
        y = self.attend(x)
        if how == "residual":
            return x + y
        if how == "norm":
            return self.norm(y)
        return self.proj(y)

class HardCoded(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.q = num_heads, nn.Linear(dim, dim)
    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 8, 64).transpose(1, 2)
        return (q @ q.mT).softmax(-1) @ q

class HeadDim(nn.Module):
    def __init__(self, dim, num_heads, head_dim):
        super().__init__()
        self.num_heads, self.head_dim, self.q = num_heads, head_dim, nn.Linear(dim, dim)
    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        return (q @ q.mT).softmax(-1) @ q

class Grouped(nn.Module):
    def __init__(self, dim, heads, kv_heads, fused=False):
        super().__init__()
        self.heads, self.kv_heads, self.hd, self.fused = heads, kv_heads, dim // heads, fused
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, kv_heads * self.hd)
    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.hd).transpose(1, 2)
        k = self.k(x).view(b, t, self.kv_heads, self.hd).transpose(1, 2)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, k)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ k

class TwoHeadDims(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q, self.k = heads, nn.Linear(dim, dim), nn.Linear(dim, dim // 2)
    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.k(x).view(b, t, self.heads, -1).transpose(1, 2)
        return torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1) @ k

class Inside(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.down = nn.Linear(dim, dim // 2)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
    def forward(self, x):
        y = self.down(x)
        return self.attn(y, y, y)[0]

class Loads(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.q.load_state_dict({"weight": torch.zeros(8, 8), "bias": torch.zeros(8)})

class Fixed(nn.Module):
    def __init__(self, dim, heads, seq):
        super().__init__()
        self.heads, self.q, self.pos = heads, nn.Linear(dim, dim), nn.Parameter(torch.zeros(seq, dim))
    def forward(self, x):
        b, t, d = x.shape
        return (self.q(x) + self.pos).view(b, 99, self.heads, d // self.heads)
"""

VALID = "valid: 1, 2, 4, 8, 16, 32, 64"


def _problem(opened: Open, build: str, call: str = "torch.randn(2, 10, 64)") -> ShapeProblem:
    outcome = opened(SOURCE, build.partition("(")[0], build=build, call=call)
    assert isinstance(outcome, NotChecked), "it ran"
    assert outcome.problem is not None, outcome.reason
    assert outcome.reason.endswith(outcome.problem.message)
    return outcome.problem


def _line(text: str) -> int:
    return 4 + SOURCE[: SOURCE.index(text)].count("\n")


INDIVISIBLE = [
    (
        "Views(64, 9)", "q = q.view(B, T,",
        "view(B, T, 9, 7) needs 63 channels, the projection gives 64: "
        f"num_heads = 9 does not divide d_model = 64 (remainder 1); {VALID}",
        "use 8 or 16 heads, or a d_model that is a multiple of 9",
        "shape '[2, 10, 9, 7]' is invalid for input of size 1280",
    ),
    (
        "OpenView(64, 9)", "q = self.q(x).reshape",
        f"reshape(b, n, 9, -1): heads = 9 does not divide d_model = 64 (remainder 1); {VALID}",
        "use 8 or 16 heads, or a d_model that is a multiple of 9",
        "shape '[2, 10, 9, -1]' is invalid for input of size 1280",
    ),
    (
        "Unflattens(64, 12)", "q = self.q(x).unflatten",
        f"unflatten((12, -1)): heads = 12 does not divide d_model = 64 (remainder 4); {VALID}",
        "use 8 or 16 heads, or a d_model that is a multiple of 12",
        "unflatten: Provided sizes [12, -1] don't multiply up to the size of dim 2 (64) in the "
        "input tensor",
    ),
    (
        "Asserts(64, 9)", "assert d_model % num_heads",
        f"num_heads = 9 does not divide d_model = 64 (remainder 1); {VALID}",
        "use 8 or 16 heads, or a d_model that is a multiple of 9",
        "must divide",
    ),
    (
        "Raises(64, 9)", 'raise ValueError("bad heads")',
        f"num_heads = 9 does not divide embed_dim = 64 (remainder 1); {VALID}",
        "use 8 or 16 heads, or an embed_dim that is a multiple of 9",
        "bad heads",
    ),
    (
        "Product(64, 9)", "assert self.head_dim * num_heads",
        f"num_heads = 9 does not divide embed_dim = 64 (remainder 1); {VALID}",
        "use 8 or 16 heads, or an embed_dim that is a multiple of 9",
        "bad product",
    ),
    (
        "Library(64, 9)", "nn.MultiheadAttention(width, heads)\n",
        "nn.MultiheadAttention: num_heads = 9 does not divide embed_dim = 64 (remainder 1); "
        + VALID,
        "use 8 or 16 heads, or an embed_dim that is a multiple of 9",
        "embed_dim must be divisible by num_heads",
    ),
    (
        "Drops(64, 9)", "return self.proj(y)",
        "proj reads 64 channels, the concatenated heads are 9 x 7 = 63: "
        f"heads = 9 does not divide d_model = 64 (remainder 1); {VALID}",
        "use 8 or 16 heads, or a d_model that is a multiple of 9",
        "mat1 and mat2 shapes cannot be multiplied (20x63 and 64x64)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("build", "at", "message", "help_", "evidence"), INDIVISIBLE)
def test_head_counts_that_do_not_divide(
    opened: Open, build: str, at: str, message: str, help_: str, evidence: str
) -> None:
    problem = _problem(opened, build)
    assert problem.code == "MHA102"
    assert problem.message == message
    assert problem.help == help_
    assert problem.evidence == (evidence,)
    assert problem.span.line == _line(at)


@pytest.mark.parametrize(
    ("how", "at", "lead"),
    [
        ("residual", "return x + y", "the residual has 64 channels"),
        ("norm", "return self.norm(y)", "the norm expects 64 channels"),
    ],
)
def test_channels_that_were_dropped_before(opened: Open, how: str, at: str, lead: str) -> None:
    problem = _problem(opened, "Drops(64, 9)", f"torch.randn(2, 10, 64), {how!r}")
    assert problem.code == "MHA102"
    assert problem.message == (
        f"{lead}, the concatenated heads are 9 x 7 = 63: "
        f"heads = 9 does not divide d_model = 64 (remainder 1); {VALID}"
    )
    assert problem.span.line == _line(at)


MISMATCHED = [
    (
        "Views(64, 8, 32)", "return self.out(y.transpose",
        "reshape(B, T, 32) merges the heads into the merged width = 32 channels, "
        "but 8 heads of 8 hold 64",
        "merge into 8 x 8 = 64 channels: use heads x head_dim, or -1",
    ),
    (
        "HardCoded(64, 4)", "q = self.q(x).view(b, t, 8, 64)",
        "view(b, t, 8, 64): the head count 8 is hard-coded, but num_heads = 4; "
        "the projection gives 64 channels, 8 x 64 = 512",
        "use the configured head count there",
    ),
    (
        "HeadDim(64, 8, 16)", "self.num_heads, self.head_dim).transpose(1, 2)\n        return (q",
        "view(b, t, 8, 16) needs 128 channels, the projection gives 64: "
        "head_dim = 16 contradicts 64 / 8 = 8",
        "make the projection 128 wide, or head_dim 8",
    ),
    (
        "Grouped(64, 8, 2)", "return (q @ k.transpose(-2, -1)).softmax(-1) @ k",
        "q has 8 heads, k has 2",
        "repeat each key/value head 4 times (repeat_interleave), or pass enable_gqa=True to "
        "scaled_dot_product_attention",
    ),
    (
        "Grouped(64, 8, 2, True)", "return F.scaled_dot_product_attention(q, k, k)",
        "q has 8 heads, k has 2",
        "repeat each key/value head 4 times (repeat_interleave), or pass enable_gqa=True to "
        "scaled_dot_product_attention",
    ),
    (
        "Grouped(64, 8, 3)", "return (q @ k.transpose(-2, -1)).softmax(-1) @ k",
        "q has 8 heads, k has 3",
        "3 does not divide 8: choose key/value heads that do",
    ),
    (
        "Grouped(64, 8, 0)", "return (q @ k.transpose(-2, -1)).softmax(-1) @ k",
        "q has 8 heads, k has 0",
        "0 does not divide 8: choose key/value heads that do",
    ),
    (
        "TwoHeadDims(64, 8)", 'return torch.einsum("bhid,bhjd->bhij"',
        "q has head_dim 8, k has 4: one score contracts both",
        "project q and k to the same head_dim",
    ),
    (
        "Inside(64, 8)", "return self.attn(y, y, y)[0]",
        "nn.MultiheadAttention of embed_dim = 64 is given 32 channels",
        "make the layer before it as wide as embed_dim, or set embed_dim to its width",
    ),
    (
        "Loads(64)", "self.q.load_state_dict",
        "weight is (8, 8) in the checkpoint, but (64, 64) in the module that was built",
        "build the module with the sizes of the checkpoint",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("build", "at", "message", "help_"), MISMATCHED)
def test_widths_that_contradict_each_other(
    opened: Open, build: str, at: str, message: str, help_: str
) -> None:
    problem = _problem(opened, build)
    assert problem.code == "MHA103"
    assert problem.message == message
    assert problem.help == help_
    first = SOURCE.index(at) + len(at) - 1
    assert problem.span.line in (_line(at), 4 + SOURCE[:first].count("\n"))


@pytest.mark.parametrize(
    ("build", "call"),
    [
        ("Views(64, 8)", "torch.randn(2, 10, 32)"),  # the call passes another width
        ("Views(64, 8)", "torch.randn(10, 64)"),
        ("Fixed(64, 8, 10)", "torch.randn(2, 10, 64)"),  # a length is fixed
        ("Drops(64, 8)", "torch.randn(2, 64)"),
        ("Grouped(64, 8, 8)", "torch.randn(2, 10, 64).double()"),
    ],
)
def test_errors_about_something_else_are_not_explained(opened: Open, build: str, call: str) -> None:
    outcome = opened(SOURCE, build.partition("(")[0], build=build, call=call)
    assert isinstance(outcome, NotChecked)
    assert outcome.problem is None


def test_the_span_covers_the_failing_expression(opened: Open) -> None:
    span = _problem(opened, "Views(64, 9)").span
    text = "q.view(B, T, self.num_heads, self.head_dim)"
    assert (span.column, span.end_column) == (13, 13 + len(text))


def test_an_error_without_a_users_frame() -> None:
    try:
        raise RuntimeError("shape '[2, 10, 9, 7]' is invalid for input of size 1280")
    except RuntimeError as error:
        assert explain_shape_error(error) is None
    assert explain_shape_error(ValueError("never raised")) is None


def test_the_files_own_example_that_breaks(opened: Open) -> None:
    source = SOURCE + "\nif __name__ == '__main__':\n    Views(64, 9)(torch.randn(2, 10, 64))\n"
    outcome = opened(source, "Views")
    assert isinstance(outcome, NotChecked)
    assert outcome.problem is not None
    assert outcome.problem.code == "MHA102"


def test_a_width_that_never_fits_needs_no_example(opened: Open) -> None:
    source = """
class Never(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d = num_heads, d_model // num_heads
        self.q, self.k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model // 2)
    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, -1).transpose(1, 2)
        k = self.k(x).view(b, t, self.h, -1).transpose(1, 2)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ k
"""
    outcome = opened(source, "Never")
    assert isinstance(outcome, NotChecked)
    assert outcome.problem is not None
    assert outcome.problem.message == "q has head_dim 6, k has 3: one score contracts both"
