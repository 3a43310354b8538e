"""Modules with masks, as text, for the tests of what masks fit."""

from __future__ import annotations

MASKED = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.h)
        hidden = mask[:, None, None, :] == 0
        scores = scores.masked_fill(hidden, float("-inf"))
        context = scores.softmax(dim=-1) @ v
        return self.out(context.transpose(1, 2).reshape(B, T, C))
"""
"""A key mask of 1 and 0 is an argument."""
MASKED_CALL = "torch.randn(2, 5, 24), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])"

TRIANGLE = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.h)
        seen = torch.ones(T, T).tril()
        scores = scores.masked_fill(seen == 0, -1e9)
        context = scores.softmax(dim=-1) @ v
        return self.out(context.transpose(1, 2).reshape(B, T, C))
"""
"""Causal attention by a triangle that is built inside."""

IDS = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.embed = nn.Embedding(30, d_model, padding_idx=0)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, ids):
        x = self.embed(ids)
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        real = ids != 0
        keep = real[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.out(y.transpose(1, 2).reshape(B, T, C))
"""
"""A key mask is made from token ids."""
IDS_CALL = "torch.tensor([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11]])"

CROSS = """\
class Attend(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, x, source, keep):
        q, k, v = self.split(self.q(x)), self.split(self.k(source)), self.split(self.v(source))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.o(y.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner, self.outer = Attend(d_model, num_heads), Attend(d_model, num_heads)

    def forward(self, tgt, memory, tgt_keep, memory_keep):
        t = tgt.shape[1]
        past = torch.ones(t, t, dtype=torch.bool).tril()
        tgt = tgt + self.inner(tgt, tgt, past & tgt_keep[:, None, None, :])
        return tgt + self.outer(tgt, memory, memory_keep[:, None, None, :])
"""
"""A decoder layer: causal attention, then attention to a memory."""
CROSS_CALL = (
    "torch.randn(2, 5, 24), torch.randn(2, 5, 24),"
    " torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]).bool(),"
    " torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()"
)
