"""The same attention spelled in many ways, all right; sizes are chosen so that no two agree."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.facts import Dims, Kind
from tests.facts.conftest import PLAIN, edited

VIEWS = (
    ("q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
     "q = self.q_proj(x).view(B, T, self.h, self.d_k)"),
    ("k = self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
     "k = self.k_proj(x).view(B, T, self.h, self.d_k)"),
    ("v = self.v_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
     "v = self.v_proj(x).view(B, T, self.h, self.d_k)"),
)  # fmt: skip
EINSUM = edited(
    PLAIN,
    *VIEWS,
    ("q @ k.transpose(-2, -1)", 'torch.einsum("bqhd,bkhd->bhqk", q, k)'),
    ("context = weights @ v", 'context = torch.einsum("bhqk,bkhd->bqhd", weights, v)'),
    ("context.transpose(1, 2).reshape(B, T, C)", "context.flatten(2)"),
)
BMM = edited(
    PLAIN,
    ("        scores = q @ k.transpose(-2, -1)\n",
     "        q, k, v = (z.reshape(B * self.h, T, self.d_k) for z in (q, k, v))\n"
     "        scores = torch.bmm(q, k.transpose(1, 2))\n"),
    ("context = weights @ v", "context = torch.bmm(weights, v).view(B, self.h, T, self.d_k)"),
)  # fmt: skip
SDPA = edited(
    PLAIN,
    ("        scores = q @ k.transpose(-2, -1)\n", ""),
    ("        scores = scores / math.sqrt(self.d_k)\n", ""),
    ("        weights = scores.softmax(dim=-1)\n", ""),
    ("context = weights @ v", "context = F.scaled_dot_product_attention(q, k, v)"),
)
KEY_FIRST = edited(
    PLAIN,
    ("scores = q @ k.transpose(-2, -1)", "scores = k @ q.transpose(-2, -1)"),
    ("scores.softmax(dim=-1)", "scores.softmax(dim=-2)"),
    ("context = weights @ v", "context = weights.transpose(-2, -1) @ v"),
)
FUSED = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)
        scores = q * self.d_k**-0.5 @ k.transpose(-2, -1)
        context = F.softmax(scores, -1) @ v
        return self.out_proj(context.transpose(1, 2).flatten(2))
"""
LISTED = """\
class Head(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.query = nn.Linear(d_model, d_k)
        self.key = nn.Linear(d_model, d_k)
        self.value = nn.Linear(d_model, d_k)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))).softmax(-1)
        return weights @ v


class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_model, d_model // num_heads) for _ in range(num_heads))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out_proj(torch.cat([head(x) for head in self.heads], dim=-1))
"""
CONV = """\
class MapAttention(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, width // num_heads
        self.q_conv = nn.Conv2d(width, width, 1)
        self.k_conv = nn.Conv2d(width, width, 1)
        self.v_conv = nn.Conv2d(width, width, 1)
        self.out_conv = nn.Conv2d(width, width, 1)

    def forward(self, x):
        B, C, H, W = x.shape
        q = self.q_conv(x).view(B, self.h, self.d_k, H * W)
        k = self.k_conv(x).view(B, self.h, self.d_k, H * W)
        v = self.v_conv(x).view(B, self.h, self.d_k, H * W)
        weights = (q.transpose(-2, -1) @ k / math.sqrt(self.d_k)).softmax(-1)
        context = v @ weights.transpose(-2, -1)
        return self.out_conv(context.reshape(B, C, H, W))
"""
GROUPED = """\
class GroupedAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.h, self.kv, self.d_k = num_heads, num_kv_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.d_k)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.d_k)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.kv, self.d_k).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.kv, self.d_k).transpose(1, 2)
        k = k.repeat_interleave(self.h // self.kv, dim=1)
        v = v.repeat_interleave(self.h // self.kv, dim=1)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(self.d_k)).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(B, T, C))
"""
CROSS = """\
class CrossAttention(nn.Module):
    def __init__(self, d_model, source_width, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(source_width, d_model)
        self.v_proj = nn.Linear(source_width, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def forward(self, x, memory):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        weights = (q @ k.mT / math.sqrt(self.d_k)).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
"""
TORCH = """\
class Wrapped(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]
"""


PLAIN_DIMS = Dims(24, 4, 4, 6, 6, 5, 5, 2)


@dataclass(frozen=True)
class Spelling:
    """One right module, how it is built and called, and what must be measured on it."""

    text: str
    build: str = "MHA(24, 4)"
    call: str = "torch.randn(2, 5, 24)"
    dims: Dims = PLAIN_DIMS
    kind: Kind = Kind.SELF
    names: tuple[str, str, str, str] = (
        "q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight",
    )  # fmt: skip
    axis: tuple[int, ...] = (3,)
    shape: str = "(B, h, T_q, T_k)"
    softmax: str = "scores.softmax(dim=-1)"
    """What the span of the softmax covers."""


SPELLINGS = {
    "matmul": Spelling(PLAIN),
    "einsum": Spelling(EINSUM),
    "bmm": Spelling(BMM, axis=(2,), shape="(B*h, T_q, T_k)"),
    "sdpa": Spelling(SDPA, softmax="F.scaled_dot_product_attention(q, k, v)"),
    "key-first": Spelling(
        KEY_FIRST, axis=(2,), shape="(B, h, T_k, T_q)", softmax="scores.softmax(dim=-2)"
    ),
    "fused": Spelling(
        FUSED,
        names=("qkv.weight", "qkv.weight", "qkv.weight", "out_proj.weight"),
        softmax="F.softmax(scores, -1)",
    ),
    "listed": Spelling(
        LISTED,
        names=(
            "heads.0.query.weight", "heads.0.key.weight", "heads.0.value.weight", "out_proj.weight",
        ),
        axis=(2,),
        shape="(B, T_q, T_k)",
        softmax="(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))).softmax(-1)",
    ),
    "conv": Spelling(
        CONV,
        build="MapAttention(24, 4)",
        call="torch.randn(2, 24, 3, 5)",
        dims=Dims(24, 4, 4, 6, 6, 15, 15, 2),
        names=("q_conv.weight", "k_conv.weight", "v_conv.weight", "out_conv.weight"),
        softmax="(q.transpose(-2, -1) @ k / math.sqrt(self.d_k)).softmax(-1)",
    ),
    "grouped": Spelling(
        GROUPED,
        build="GroupedAttention(24, 4, 2)",
        call="torch.randn(3, 5, 24)",
        dims=Dims(24, 4, 2, 6, 6, 5, 5, 3),
        softmax="(q @ k.transpose(-2, -1) / math.sqrt(self.d_k)).softmax(-1)",
    ),
    "cross": Spelling(
        CROSS,
        build="CrossAttention(24, 16, 4)",
        call="torch.randn(2, 5, 24), torch.randn(2, 7, 16)",
        dims=Dims(24, 4, 4, 6, 6, 5, 7, 2),
        kind=Kind.CROSS,
        softmax="(q @ k.mT / math.sqrt(self.d_k)).softmax(-1)",
    ),
    "torch": Spelling(
        TORCH,
        build="Wrapped(24, 4)",
        names=(
            "attention.in_proj_weight", "attention.in_proj_weight", "attention.in_proj_weight",
            "attention.out_proj.weight",
        ),
        softmax="self.attention(x, x, x, need_weights=False)",
    ),
}  # fmt: skip
