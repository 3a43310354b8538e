"""Sources of attention classes with unusual constructors and forwards, each by a name.

``UNUSUAL[name]`` is (class to open, source). They stand here as text, as a user would have them in a
file, without a hint at how they are built or called.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
import torch

from mha_lint.targets.subject import Subject

HEAD = """
import math
from dataclasses import dataclass, field
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def attend(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
    return s.softmax(-1) @ v
"""

UNUSUAL: dict[str, tuple[str, str]] = {}


def _add(name: str, target: str, body: str) -> None:
    UNUSUAL[name] = (target, HEAD + "\n\n" + textwrap.dedent(body).strip() + "\n")


_add(
    "dataclass config",
    "CausalSelfAttention",
    """
    @dataclass
    class GPTConfig:
        block_size: int
        n_embd: int
        n_head: int
        dropout: float = 0.0
        bias: bool = True

    class CausalSelfAttention(nn.Module):
        def __init__(self, config):
            super().__init__()
            assert config.n_embd % config.n_head == 0
            self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
            self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
            self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size)))
            self.n_head, self.n_embd = config.n_head, config.n_embd

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))
            y = att.softmax(-1) @ v
            return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
    """,
)

_add(
    "config without a class",
    "SelfAttention",
    """
    class SelfAttention(nn.Module):
        def __init__(self, config):
            super().__init__()
            if config.hidden_size % config.num_attention_heads != 0:
                raise ValueError("not a multiple")
            self.h = config.num_attention_heads
            self.d = config.hidden_size // config.num_attention_heads
            self.query = nn.Linear(config.hidden_size, config.hidden_size)
            self.key = nn.Linear(config.hidden_size, config.hidden_size)
            self.value = nn.Linear(config.hidden_size, config.hidden_size)
            self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
            self.scale_qk = getattr(config, "scale_qk", True)

        def forward(self, hidden_states, attention_mask=None, output_attentions=False):
            b, t, _ = hidden_states.shape
            q, k, v = (f(hidden_states).view(b, t, self.h, self.d).transpose(1, 2)
                       for f in (self.query, self.key, self.value))
            s = q @ k.transpose(-1, -2) / math.sqrt(self.d)
            if attention_mask is not None:
                s = s + attention_mask
            p = self.dropout(s.softmax(-1))
            return ((p @ v).transpose(1, 2).reshape(b, t, -1), p) if output_attentions else (
                (p @ v).transpose(1, 2).reshape(b, t, -1),)
    """,
)

_add(
    "nested config",
    "Decoder",
    """
    class Attn(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.h = cfg.model.heads
            self.qkv = nn.Linear(cfg.model.width, 3 * cfg.model.width)
            self.o = nn.Linear(cfg.model.width, cfg.model.width)
            self.p = cfg.train.dropout

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(y.transpose(1, 2).flatten(2))

    class Decoder(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.tok = nn.Embedding(cfg.data.vocab_size, cfg.model.width)
            self.layers = nn.ModuleList(Attn(cfg) for _ in range(cfg.model.depth))
            self.head = nn.Linear(cfg.model.width, cfg.data.vocab_size)

        def forward(self, idx):
            x = self.tok(idx)
            for layer in self.layers:
                x = x + layer(x)
            return self.head(x)
    """,
)

_add(
    "dict config",
    "MHA",
    """
    class MHA(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.heads = cfg["n_heads"]
            self.hd = cfg["emb_dim"] // cfg["n_heads"]
            self.q = nn.Linear(cfg["emb_dim"], cfg["emb_dim"], bias=cfg["qkv_bias"])
            self.k = nn.Linear(cfg["emb_dim"], cfg["emb_dim"], bias=cfg["qkv_bias"])
            self.v = nn.Linear(cfg["emb_dim"], cfg["emb_dim"], bias=cfg["qkv_bias"])
            self.out = nn.Linear(cfg["emb_dim"], cfg["emb_dim"])
            self.drop = nn.Dropout(cfg.get("drop_rate", 0.1))
            self.register_buffer("mask", torch.triu(torch.ones(
                cfg["context_length"], cfg["context_length"]), diagonal=1).bool())

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = (f(x).view(b, n, self.heads, self.hd).transpose(1, 2) for f in (self.q, self.k, self.v))
            s = (q @ k.mT / self.hd**0.5).masked_fill(self.mask[:n, :n], -torch.inf)
            return self.out((self.drop(s.softmax(-1)) @ v).transpose(1, 2).reshape(b, n, d))
    """,
)

_add(
    "dict and attribute config",
    "Layer",
    """
    class Layer(nn.Module):
        def __init__(self, args):
            super().__init__()
            self.args = args
            self.nh = args["heads"]
            self.wqkv = nn.Linear(args.dim, 3 * args.dim)
            self.wo = nn.Linear(args.dim, args.dim)
            self.use_norm = args.get("use_norm", False)

        def forward(self, x):
            B, L, D = x.shape
            qkv = self.wqkv(x).reshape(B, L, 3, self.nh, D // self.nh).permute(2, 0, 3, 1, 4)
            return self.wo(attend(*qkv.unbind(0)).transpose(1, 2).reshape(B, L, D))
    """,
)

_add(
    "heads before width",
    "MultiHeadedAttention",
    """
    class MultiHeadedAttention(nn.Module):
        def __init__(self, h, d_model, dropout=0.1):
            super().__init__()
            assert d_model % h == 0
            self.d_k, self.h = d_model // h, h
            self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
            self.dropout = nn.Dropout(p=dropout)

        def forward(self, query, key, value, mask=None):
            if mask is not None:
                mask = mask.unsqueeze(1)
            n = query.size(0)
            query, key, value = [
                lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
                for lin, x in zip(self.linears, (query, key, value))
            ]
            s = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
            if mask is not None:
                s = s.masked_fill(mask == 0, -1e9)
            x = torch.matmul(self.dropout(s.softmax(dim=-1)), value)
            return self.linears[-1](x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k))
    """,
)

_add(
    "modules handed in",
    "EncoderLayer",
    """
    class SelfAttention(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            self.mha = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

        def forward(self, x, mask):
            return self.mha(x, x, x, key_padding_mask=mask)[0]

    class FeedForward(nn.Module):
        def __init__(self, d_model, d_ff):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

        def forward(self, x):
            return self.net(x)

    class EncoderLayer(nn.Module):
        def __init__(self, size, self_attn, feed_forward, dropout):
            super().__init__()
            self.self_attn, self.feed_forward = self_attn, feed_forward
            self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
            self.drop = nn.Dropout(dropout)

        def forward(self, x, mask):
            x = x + self.drop(self.self_attn(self.norm1(x), mask))
            return x + self.drop(self.feed_forward(self.norm2(x)))
    """,
)

_add(
    "factories handed in",
    "Block",
    """
    class Block(nn.Module):
        def __init__(self, dim, num_heads, norm_layer, act_layer, mlp_ratio):
            super().__init__()
            self.norm = norm_layer(dim)
            self.attn = nn.MultiheadAttention(dim, num_heads, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(dim, int(dim * mlp_ratio)), act_layer(),
                                     nn.Linear(int(dim * mlp_ratio), dim))

        def forward(self, x):
            y = self.norm(x)
            x = x + self.attn(y, y, y, need_weights=False)[0]
            return x + self.mlp(self.norm(x))
    """,
)

_add(
    "window attention",
    "WindowAttention",
    """
    class WindowAttention(nn.Module):
        def __init__(self, dim, window_size, num_heads):
            super().__init__()
            self.window_size, self.num_heads = window_size, num_heads
            self.scale = (dim // num_heads) ** -0.5
            n = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
            self.table = nn.Parameter(torch.zeros(n, num_heads))
            coords = torch.stack(torch.meshgrid(
                torch.arange(window_size[0]), torch.arange(window_size[1]), indexing="ij")).flatten(1)
            rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
            rel[:, :, 0] += window_size[0] - 1
            rel[:, :, 1] += window_size[1] - 1
            rel[:, :, 0] *= 2 * window_size[1] - 1
            self.register_buffer("index", rel.sum(-1))
            self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

        def forward(self, x, mask=None):
            B_, N, C = x.shape
            qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            attn = (q * self.scale) @ k.transpose(-2, -1)
            size = self.window_size[0] * self.window_size[1]
            bias = self.table[self.index.view(-1)].view(size, size, -1).permute(2, 0, 1)
            attn = (attn + bias.unsqueeze(0)).softmax(dim=-1)
            return self.proj((attn @ v).transpose(1, 2).reshape(B_, N, C))
    """,
)

_add(
    "grid size and ints",
    "SRAttention",
    """
    class SRAttention(nn.Module):
        def __init__(self, dim, num_heads=8, sr_ratio=1):
            super().__init__()
            self.num_heads, self.sr_ratio = num_heads, sr_ratio
            self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
            self.proj = nn.Linear(dim, dim)

        def forward(self, x, H, W):
            B, N, C = x.shape
            q = self.q(x).reshape(B, N, self.num_heads, -1).permute(0, 2, 1, 3)
            x_ = x.permute(0, 2, 1).reshape(B, C, H, W).reshape(B, C, -1).permute(0, 2, 1)
            kv = self.kv(x_).reshape(B, -1, 2, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
            return self.proj(attend(q, kv[0], kv[1]).transpose(1, 2).reshape(B, N, C))
    """,
)

_add(
    "channel map",
    "SpatialAttention",
    """
    class SpatialAttention(nn.Module):
        def __init__(self, channels, num_heads=1, num_groups=32):
            super().__init__()
            self.h = num_heads
            self.norm = nn.GroupNorm(num_groups, channels)
            self.qkv = nn.Conv1d(channels, channels * 3, 1)
            self.out = nn.Conv1d(channels, channels, 1)

        def forward(self, x):
            b, c, *spatial = x.shape
            y = self.qkv(self.norm(x.reshape(b, c, -1)))
            q, k, v = (t.reshape(b * self.h, c // self.h, -1).transpose(1, 2) for t in y.chunk(3, 1))
            a = attend(q, k, v).transpose(1, 2).reshape(b, c, -1)
            return x + self.out(a).reshape(b, c, *spatial)
    """,
)

_add(
    "image conv attention",
    "SAGAN",
    """
    class SAGAN(nn.Module):
        def __init__(self, in_dim):
            super().__init__()
            self.f = nn.Conv2d(in_dim, in_dim // 8, 1)
            self.g = nn.Conv2d(in_dim, in_dim // 8, 1)
            self.h = nn.Conv2d(in_dim, in_dim, 1)
            self.gamma = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            b, c, width, height = x.size()
            q = self.f(x).view(b, -1, width * height).permute(0, 2, 1)
            k = self.g(x).view(b, -1, width * height)
            attention = torch.bmm(q, k).softmax(-1)
            v = self.h(x).view(b, -1, width * height)
            return self.gamma * torch.bmm(v, attention.permute(0, 2, 1)).view(b, c, width, height) + x
    """,
)

_add(
    "time first",
    "TimeFirst",
    """
    class TimeFirst(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()
            self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
            self.q, self.k, self.v, self.o = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

        def forward(self, query, key, value):
            tgt_len, bsz, embed_dim = query.size()
            q = self.q(query).view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
            k = self.k(key).view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
            v = self.v(value).view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
            y = attend(q, k, v).transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
            return self.o(y)
    """,
)

_add(
    "channels before time",
    "ConvAttention",
    """
    class ConvAttention(nn.Module):
        def __init__(self, channels, n_heads, p_dropout=0.0):
            super().__init__()
            self.n_heads, self.k_channels = n_heads, channels // n_heads
            self.conv_q, self.conv_k, self.conv_v, self.conv_o = (
                nn.Conv1d(channels, channels, 1) for _ in range(4))

        def forward(self, x, c, attn_mask=None):
            q, k, v = self.conv_q(x), self.conv_k(c), self.conv_v(c)
            b, d, t_s, t_t = (*k.size(), q.size(2))
            q = q.view(b, self.n_heads, self.k_channels, t_t).transpose(2, 3)
            k = k.view(b, self.n_heads, self.k_channels, t_s).transpose(2, 3)
            v = v.view(b, self.n_heads, self.k_channels, t_s).transpose(2, 3)
            return self.conv_o(attend(q, k, v).transpose(2, 3).contiguous().view(b, d, t_t))
    """,
)

_add(
    "optional cache",
    "CachedAttention",
    """
    class CachedAttention(nn.Module):
        def __init__(self, dim, n_heads, n_kv_heads):
            super().__init__()
            self.h, self.g, self.hd = n_heads, n_kv_heads, dim // n_heads
            self.wq = nn.Linear(dim, n_heads * self.hd, bias=False)
            self.wk = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
            self.wv = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
            self.wo = nn.Linear(n_heads * self.hd, dim, bias=False)

        def forward(self, x, past_key_value=None, use_cache=False):
            b, t, _ = x.shape
            q = self.wq(x).view(b, t, self.h, self.hd).transpose(1, 2)
            k = self.wk(x).view(b, t, self.g, self.hd).transpose(1, 2)
            v = self.wv(x).view(b, t, self.g, self.hd).transpose(1, 2)
            if past_key_value is not None:
                k, v = torch.cat([past_key_value[0], k], 2), torch.cat([past_key_value[1], v], 2)
            r = self.h // self.g
            y = attend(q, k.repeat_interleave(r, 1), v.repeat_interleave(r, 1))
            return self.wo(y.transpose(1, 2).reshape(b, t, -1)), (k, v) if use_cache else None
    """,
)

_add(
    "rotary required",
    "Attention",
    """
    @dataclass
    class ModelArgs:
        dim: int = 32
        n_heads: int = 4
        n_kv_heads: Optional[int] = None
        max_seq_len: int = 64

    def apply_rotary_emb(xq, xk, freqs_cis):
        xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
        xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
        f = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
        return torch.view_as_real(xq_ * f).flatten(3), torch.view_as_real(xk_ * f).flatten(3)

    class Attention(nn.Module):
        def __init__(self, args: ModelArgs):
            super().__init__()
            self.n_heads, self.head_dim = args.n_heads, args.dim // args.n_heads
            self.wq, self.wk, self.wv, self.wo = (
                nn.Linear(args.dim, args.dim, bias=False) for _ in range(4))

        def forward(self, x, start_pos, freqs_cis, mask):
            bsz, seqlen, _ = x.shape
            xq, xk, xv = (f(x).view(bsz, seqlen, self.n_heads, self.head_dim)
                          for f in (self.wq, self.wk, self.wv))
            xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
            s = xq.transpose(1, 2) @ xk.transpose(1, 2).transpose(2, 3) / math.sqrt(self.head_dim)
            if mask is not None:
                s = s + mask
            y = s.softmax(-1) @ xv.transpose(1, 2)
            return self.wo(y.transpose(1, 2).contiguous().view(bsz, seqlen, -1))
    """,
)

_add(
    "cos and sin",
    "RotaryAttention",
    """
    def rotate_half(x):
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    class RotaryAttention(nn.Module):
        def __init__(self, hidden_size, num_heads):
            super().__init__()
            self.h, self.d = num_heads, hidden_size // num_heads
            self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
            self.dense = nn.Linear(hidden_size, hidden_size)

        def forward(self, hidden_states, cos, sin):
            b, t, c = hidden_states.shape
            q, k, v = self.qkv(hidden_states).view(b, t, 3, self.h, self.d).permute(2, 0, 3, 1, 4)
            q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
            return self.dense(attend(q, k, v).transpose(1, 2).reshape(b, t, c))
    """,
)

_add(
    "position embeddings pair",
    "QwenLike",
    """
    class QwenLike(nn.Module):
        def __init__(self, config, layer_idx):
            super().__init__()
            self.layer_idx = layer_idx
            self.head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
            self.q_proj = nn.Linear(config.hidden_size, config.num_attention_heads * self.head_dim)
            self.k_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head_dim)
            self.v_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head_dim)
            self.o_proj = nn.Linear(config.num_attention_heads * self.head_dim, config.hidden_size)
            self.groups = config.num_attention_heads // config.num_key_value_heads

        def forward(self, hidden_states, position_embeddings, attention_mask=None):
            shape = (*hidden_states.shape[:-1], -1, self.head_dim)
            q = self.q_proj(hidden_states).view(shape).transpose(1, 2)
            k = self.k_proj(hidden_states).view(shape).transpose(1, 2)
            v = self.v_proj(hidden_states).view(shape).transpose(1, 2)
            cos, sin = position_embeddings
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
            q, k = q * cos + q.flip(-1) * sin, k * cos + k.flip(-1) * sin
            k, v = k.repeat_interleave(self.groups, 1), v.repeat_interleave(self.groups, 1)
            y = attend(q, k, v).transpose(1, 2).flatten(2)
            return self.o_proj(y)
    """,
)

_add(
    "dict input",
    "DictEncoder",
    """
    class DictEncoder(nn.Module):
        def __init__(self, vocab_size, hidden_dim, nheads):
            super().__init__()
            self.emb = nn.Embedding(vocab_size, hidden_dim)
            self.attn = nn.MultiheadAttention(hidden_dim, nheads, batch_first=True)

        def forward(self, batch):
            x = self.emb(batch["input_ids"])
            pad = batch["attention_mask"] == 0
            return self.attn(x, x, x, key_padding_mask=pad)[0]
    """,
)

_add(
    "list of features",
    "MultiScale",
    """
    class MultiScale(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

        def forward(self, feats: list[Tensor]):
            x = torch.cat(feats, dim=1)
            b, n, d = x.shape
            q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            return self.o(attend(q, k, v).transpose(1, 2).reshape(b, n, d))
    """,
)

_add(
    "per-head list",
    "MultiHeads",
    """
    class Head(nn.Module):
        def __init__(self, n_embd, head_size, block_size, dropout):
            super().__init__()
            self.key = nn.Linear(n_embd, head_size, bias=False)
            self.query = nn.Linear(n_embd, head_size, bias=False)
            self.value = nn.Linear(n_embd, head_size, bias=False)
            self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
            self.dropout = nn.Dropout(dropout)

        def forward(self, x):
            B, T, C = x.shape
            k, q = self.key(x), self.query(x)
            wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf")).softmax(-1)
            return self.dropout(wei) @ self.value(x)

    class MultiHeads(nn.Module):
        def __init__(self, num_heads, head_size, n_embd, block_size, dropout):
            super().__init__()
            self.heads = nn.ModuleList(
                [Head(n_embd, head_size, block_size, dropout) for _ in range(num_heads)])
            self.proj = nn.Linear(head_size * num_heads, n_embd)

        def forward(self, x):
            return self.proj(torch.cat([h(x) for h in self.heads], dim=-1))
    """,
)

_add(
    "globals as sizes",
    "Block",
    """
    n_embd = 24
    n_head = 4
    block_size = 16
    device = "cuda" if torch.cuda.is_available() else "cpu"

    class Head(nn.Module):
        def __init__(self, head_size):
            super().__init__()
            self.key = nn.Linear(n_embd, head_size, bias=False)
            self.query = nn.Linear(n_embd, head_size, bias=False)
            self.value = nn.Linear(n_embd, head_size, bias=False)
            self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

        def forward(self, x):
            B, T, C = x.shape
            wei = self.query(x) @ self.key(x).transpose(-2, -1) * C**-0.5
            return wei.masked_fill(self.tril[:T, :T] == 0, float("-inf")).softmax(-1) @ self.value(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList([Head(n_embd // n_head) for _ in range(n_head)])
            self.ln = nn.LayerNorm(n_embd)

        def forward(self, x):
            x = self.ln(x)
            return torch.cat([h(x) for h in self.heads], -1)
    """,
)

_add(
    "no heads argument",
    "SingleHead",
    """
    class SingleHead(nn.Module):
        def __init__(self, input_size, attention_size):
            super().__init__()
            self.wq = nn.Parameter(torch.empty(input_size, attention_size))
            self.wk = nn.Parameter(torch.empty(input_size, attention_size))
            self.wv = nn.Parameter(torch.empty(input_size, attention_size))
            for w in (self.wq, self.wk, self.wv):
                nn.init.xavier_uniform_(w)

        def forward(self, x):
            q, k, v = x @ self.wq, x @ self.wk, x @ self.wv
            return F.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1) @ v
    """,
)

_add(
    "temperature argument",
    "ScaledDotProductAttention",
    """
    class ScaledDotProductAttention(nn.Module):
        def __init__(self, temperature, attn_dropout=0.1):
            super().__init__()
            self.temperature = temperature
            self.dropout = nn.Dropout(attn_dropout)

        def forward(self, q, k, v, mask=None):
            attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
            if mask is not None:
                attn = attn.masked_fill(mask == 0, -1e9)
            attn = self.dropout(F.softmax(attn, dim=-1))
            return torch.matmul(attn, v), attn
    """,
)

_add(
    "bahdanau",
    "AdditiveAttention",
    """
    class AdditiveAttention(nn.Module):
        def __init__(self, enc_hid_dim, dec_hid_dim):
            super().__init__()
            self.attn = nn.Linear(enc_hid_dim * 2 + dec_hid_dim, dec_hid_dim)
            self.v = nn.Linear(dec_hid_dim, 1, bias=False)

        def forward(self, hidden, encoder_outputs):
            batch_size, src_len = encoder_outputs.shape[1], encoder_outputs.shape[0]
            hidden = hidden.unsqueeze(1).repeat(1, src_len, 1)
            enc = encoder_outputs.permute(1, 0, 2)
            energy = torch.tanh(self.attn(torch.cat((hidden, enc), dim=2)))
            a = self.v(energy).squeeze(2).softmax(1)
            return torch.bmm(a.unsqueeze(1), enc)
    """,
)

_add(
    "cross with own widths",
    "CrossAttention",
    """
    class CrossAttention(nn.Module):
        def __init__(self, query_dim, context_dim=None, heads=8, dim_head=64, dropout=0.0):
            super().__init__()
            inner = dim_head * heads
            context_dim = query_dim if context_dim is None else context_dim
            self.heads, self.scale = heads, dim_head**-0.5
            self.to_q = nn.Linear(query_dim, inner, bias=False)
            self.to_k = nn.Linear(context_dim, inner, bias=False)
            self.to_v = nn.Linear(context_dim, inner, bias=False)
            self.to_out = nn.Sequential(nn.Linear(inner, query_dim), nn.Dropout(dropout))

        def forward(self, x, context=None, mask=None):
            context = x if context is None else context
            b, n, h = x.shape[0], x.shape[1], self.heads
            q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
            q, k, v = (t.reshape(b, t.shape[1], h, -1).transpose(1, 2) for t in (q, k, v))
            y = (q @ k.mT * self.scale).softmax(-1) @ v
            return self.to_out(y.transpose(1, 2).reshape(b, n, -1))
    """,
)

_add(
    "perceiver resampler",
    "PerceiverAttention",
    """
    class PerceiverAttention(nn.Module):
        def __init__(self, *, dim, dim_head=64, heads=8):
            super().__init__()
            self.heads, self.scale = heads, dim_head**-0.5
            self.norm_media, self.norm_latents = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.to_q = nn.Linear(dim, dim_head * heads, bias=False)
            self.to_kv = nn.Linear(dim, dim_head * heads * 2, bias=False)
            self.to_out = nn.Linear(dim_head * heads, dim, bias=False)

        def forward(self, x, latents):
            x, latents = self.norm_media(x), self.norm_latents(latents)
            b, m, h = *x.shape[:2], self.heads
            q = self.to_q(latents)
            k, v = self.to_kv(torch.cat((x, latents), dim=-2)).chunk(2, dim=-1)
            q, k, v = (t.unflatten(-1, (h, -1)).transpose(-3, -2) for t in (q, k, v))
            y = (q * self.scale @ k.transpose(-1, -2)).softmax(-1) @ v
            return self.to_out(y.transpose(-3, -2).flatten(-2))
    """,
)

_add(
    "five axes",
    "SpaceTime",
    """
    class SpaceTime(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.qkv, self.out = nn.Conv3d(dim, 3 * dim, 1), nn.Conv3d(dim, dim, 1)

        def forward(self, x):
            b, c, f, h, w = x.shape
            q, k, v = self.qkv(x).chunk(3, dim=1)
            q, k, v = (t.reshape(b, self.heads, c // self.heads, f * h * w).transpose(2, 3)
                       for t in (q, k, v))
            return self.out(attend(q, k, v).transpose(2, 3).reshape(b, c, f, h, w))
    """,
)

_add(
    "axial four axes",
    "AxialAttention",
    """
    class AxialAttention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x):
            b, h, w, c = x.shape
            q, k, v = self.qkv(x).reshape(b, h, w, 3, self.heads, c // self.heads).permute(3, 0, 1, 4, 2, 5)
            return self.out(attend(q, k, v).transpose(2, 3).reshape(b, h, w, c))
    """,
)

_add(
    "graph with adjacency",
    "GraphAttentionLayer",
    """
    class GraphAttentionLayer(nn.Module):
        def __init__(self, in_features, out_features, dropout, alpha, concat=True):
            super().__init__()
            self.out_features = out_features
            self.W = nn.Parameter(torch.empty(size=(in_features, out_features)))
            nn.init.xavier_uniform_(self.W.data, gain=1.414)
            self.a = nn.Parameter(torch.empty(size=(2 * out_features, 1)))
            nn.init.xavier_uniform_(self.a.data, gain=1.414)
            self.leakyrelu = nn.LeakyReLU(alpha)
            self.dropout = dropout

        def forward(self, h, adj):
            Wh = torch.mm(h, self.W)
            e = self.leakyrelu(torch.matmul(Wh, self.a[: self.out_features])
                               + torch.matmul(Wh, self.a[self.out_features :]).T)
            e = torch.where(adj > 0, e, -9e15 * torch.ones_like(e))
            return torch.matmul(F.softmax(e, dim=1), Wh)
    """,
)

_add(
    "whole model",
    "Transformer",
    """
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len):
            super().__init__()
            pos, i = torch.arange(max_len)[:, None], torch.arange(0, d_model, 2)
            angle = pos / 10000 ** (i / d_model)
            pe = torch.zeros(max_len, d_model)
            pe[:, 0::2], pe[:, 1::2] = angle.sin(), angle.cos()
            self.register_buffer("pe", pe)

        def forward(self, x):
            return x + self.pe[: x.size(1)]

    class Transformer(nn.Module):
        def __init__(self, src_vocab_size, tgt_vocab_size, d_model, num_heads, num_layers, d_ff,
                     max_seq_length, dropout):
            super().__init__()
            self.src_emb = nn.Embedding(src_vocab_size, d_model)
            self.tgt_emb = nn.Embedding(tgt_vocab_size, d_model)
            self.pos = PositionalEncoding(d_model, max_seq_length)
            self.core = nn.Transformer(d_model, num_heads, num_layers, num_layers, d_ff, dropout,
                                       batch_first=True)
            self.fc = nn.Linear(d_model, tgt_vocab_size)

        def forward(self, src, tgt):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
            x = self.core(self.pos(self.src_emb(src)), self.pos(self.tgt_emb(tgt)), tgt_mask=mask)
            return self.fc(x)
    """,
)

_add(
    "decoder layer with two masks",
    "DecoderLayer",
    """
    class MHA(nn.Module):
        def __init__(self, hid_dim, n_heads, dropout, device):
            super().__init__()
            assert hid_dim % n_heads == 0
            self.n_heads, self.head_dim = n_heads, hid_dim // n_heads
            self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(hid_dim, hid_dim) for _ in range(4))
            self.scale = torch.sqrt(torch.FloatTensor([self.head_dim])).to(device)

        def forward(self, query, key, value, mask=None):
            b = query.shape[0]
            Q = self.fc_q(query).view(b, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
            K = self.fc_k(key).view(b, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
            V = self.fc_v(value).view(b, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
            energy = torch.matmul(Q, K.permute(0, 1, 3, 2)) / self.scale
            if mask is not None:
                energy = energy.masked_fill(mask == 0, -1e10)
            x = torch.matmul(energy.softmax(-1), V)
            return self.fc_o(x.permute(0, 2, 1, 3).contiguous().view(b, -1, self.n_heads * self.head_dim))

    class DecoderLayer(nn.Module):
        def __init__(self, hid_dim, n_heads, pf_dim, dropout, device):
            super().__init__()
            self.norm = nn.LayerNorm(hid_dim)
            self.self_attention = MHA(hid_dim, n_heads, dropout, device)
            self.encoder_attention = MHA(hid_dim, n_heads, dropout, device)
            self.ff = nn.Sequential(nn.Linear(hid_dim, pf_dim), nn.ReLU(), nn.Linear(pf_dim, hid_dim))

        def forward(self, trg, enc_src, trg_mask, src_mask):
            trg = self.norm(trg + self.self_attention(trg, trg, trg, trg_mask))
            trg = self.norm(trg + self.encoder_attention(trg, enc_src, enc_src, src_mask))
            return self.norm(trg + self.ff(trg))
    """,
)

_add(
    "numeric mask",
    "OldMask",
    """
    class OldMask(nn.Module):
        def __init__(self, d, nh):
            super().__init__()
            self.nh = nh
            self.lin = nn.Linear(d, 3 * d)

        def forward(self, x, mask):
            B, L, D = x.shape
            q, k, v = self.lin(x).view(B, L, 3, self.nh, -1).permute(2, 0, 3, 1, 4)
            s = q @ k.mT / math.sqrt(q.shape[-1]) + (1.0 - mask[:, None, None, :]) * -10000.0
            return (s.softmax(-1) @ v).transpose(1, 2).reshape(B, L, D)
    """,
)

_add(
    "lengths",
    "LengthMasked",
    """
    class LengthMasked(nn.Module):
        def __init__(self, n_units, n_heads):
            super().__init__()
            self.h = n_heads
            self.qkv, self.out = nn.Linear(n_units, 3 * n_units), nn.Linear(n_units, n_units)

        def forward(self, xs, ilens):
            b, t, c = xs.shape
            valid = torch.arange(t)[None, :] < ilens[:, None]
            q, k, v = (z.view(b, t, self.h, -1).transpose(1, 2) for z in self.qkv(xs).chunk(3, -1))
            return self.out(attend(q, k, v, valid[:, None, None, :]).transpose(1, 2).reshape(b, t, c))
    """,
)

_add(
    "sequence length fixed",
    "Linformer",
    """
    class Linformer(nn.Module):
        def __init__(self, dim, seq_len, k, heads):
            super().__init__()
            self.heads, self.seq_len = heads, seq_len
            self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
            self.proj_k = nn.Parameter(torch.randn(seq_len, k) / k**0.5)
            self.proj_v = nn.Parameter(torch.randn(seq_len, k) / k**0.5)
            self.to_out = nn.Linear(dim, dim)

        def forward(self, x):
            b, n, d = x.shape
            assert n == self.seq_len, "the length is fixed"
            k = torch.einsum("bnd,nk->bkd", self.to_k(x), self.proj_k)
            v = torch.einsum("bnd,nk->bkd", self.to_v(x), self.proj_v)
            q, k, v = (t.reshape(b, t.shape[1], self.heads, -1).transpose(1, 2)
                       for t in (self.to_q(x), k, v))
            return self.to_out(attend(q, k, v).transpose(1, 2).reshape(b, n, d))
    """,
)

_add(
    "learned positions",
    "ViT",
    """
    class ViT(nn.Module):
        def __init__(self, *, image_size, patch_size, num_classes, dim, depth, heads, mlp_dim, channels=3):
            super().__init__()
            assert image_size % patch_size == 0
            n = (image_size // patch_size) ** 2
            self.to_patch = nn.Conv2d(channels, dim, patch_size, patch_size)
            self.pos = nn.Parameter(torch.randn(1, n + 1, dim))
            self.cls = nn.Parameter(torch.randn(1, 1, dim))
            layer = nn.TransformerEncoderLayer(dim, heads, mlp_dim, batch_first=True)
            self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
            self.head = nn.Linear(dim, num_classes)

        def forward(self, img):
            x = self.to_patch(img).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), 1) + self.pos
            return self.head(self.enc(x)[:, 0])
    """,
)

_add(
    "activation by name",
    "NamedActivation",
    """
    class NamedActivation(nn.Module):
        def __init__(self, dim, heads, activation):
            super().__init__()
            self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
            if activation == "relu":
                self.act = F.relu
            elif activation == "gelu":
                self.act = F.gelu
            else:
                raise RuntimeError(f"activation should be relu/gelu, not {activation}.")

        def forward(self, src, pos):
            q = src + pos
            return self.act(self.attn(q, q, src)[0])
    """,
)

_add(
    "enum of modes",
    "PooledAttention",
    """
    class PooledAttention(nn.Module):
        def __init__(self, in_dim, mode):
            super().__init__()
            if mode not in ("dot", "general"):
                raise ValueError("Invalid attention type selected.")
            self.mode = mode
            if mode == "general":
                self.linear_in = nn.Linear(in_dim, in_dim, bias=False)
            self.linear_out = nn.Linear(in_dim * 2, in_dim, bias=False)

        def forward(self, query, context):
            batch, out_len, dims = query.size()
            if self.mode == "general":
                query = self.linear_in(query)
            w = torch.bmm(query, context.transpose(1, 2).contiguous()).softmax(-1)
            mix = torch.bmm(w, context)
            return torch.tanh(self.linear_out(torch.cat((mix, query), dim=2))), w
    """,
)

_add(
    "tuple input",
    "PairAttention",
    """
    class PairAttention(nn.Module):
        def __init__(self, c_z, c_hidden, no_heads):
            super().__init__()
            self.no_heads = no_heads
            self.q, self.kv = nn.Linear(c_z, c_hidden * no_heads), nn.Linear(c_z, 2 * c_hidden * no_heads)
            self.o = nn.Linear(c_hidden * no_heads, c_z)

        def forward(self, inputs):
            x, y = inputs
            q = self.q(x).unflatten(-1, (self.no_heads, -1)).transpose(-3, -2)
            k, v = (t.unflatten(-1, (self.no_heads, -1)).transpose(-3, -2) for t in self.kv(y).chunk(2, -1))
            return self.o(attend(q, k, v).transpose(-3, -2).flatten(-2))
    """,
)

_add(
    "keyword-only forward",
    "KeywordOnly",
    """
    class KeywordOnly(nn.Module):
        def __init__(self, model_dim: int, *, num_heads: int, head_width: int, causal: bool):
            super().__init__()
            self.num_heads, self.causal = num_heads, causal
            self.proj_in = nn.Linear(model_dim, 3 * num_heads * head_width)
            self.proj_out = nn.Linear(num_heads * head_width, model_dim)

        def forward(self, *, tokens: Tensor, key_mask: Tensor):
            q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                       for t in self.proj_in(tokens).chunk(3, -1))
            return self.proj_out(attend(q, k, v, key_mask[:, None, None]).transpose(1, 2).flatten(2))
    """,
)

_add(
    "powers of two asserted",
    "PowerOfTwo",
    """
    class PowerOfTwo(nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            d = d_model // n_heads
            assert (d & (d - 1)) == 0 and d != 0, "head_dim must be a power of two"
            self.n_heads = n_heads
            self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                       for t in self.qkv(x).chunk(3, -1))
            return self.out(attend(q, k, v).transpose(1, 2).flatten(2))
    """,
)

_add(
    "chunked",
    "ChunkedAttention",
    """
    class ChunkedAttention(nn.Module):
        def __init__(self, dim, heads, chunk_size):
            super().__init__()
            self.heads, self.chunk_size = heads, chunk_size
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x):
            b, n, d = x.shape
            if n % self.chunk_size != 0:
                raise ValueError(f"sequence length {n} must be a multiple of {self.chunk_size}")
            y = self.qkv(x).reshape(b, n // self.chunk_size, self.chunk_size, 3, self.heads, -1)
            q, k, v = y.permute(3, 0, 1, 4, 2, 5)
            return self.out(attend(q, k, v).transpose(2, 3).reshape(b, n, d))
    """,
)

_add(
    "eval returns nothing",
    "Stubborn",
    """
    class Stubborn(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.w = nn.Parameter(torch.Tensor(3 * width, width))
            self.o = nn.Linear(width, width)

        def eval(self):
            self.train(False)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = F.linear(x, self.w).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            return self.o(attend(q, k, v).transpose(1, 2).reshape(b, t, c))
    """,
)

_add(
    "attention function",
    "dot_attention",
    """
    def dot_attention(query, key, value, mask=None, dropout=None):
        d_k = query.size(-1)
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p_attn = F.softmax(scores, dim=-1)
        if dropout is not None:
            p_attn = dropout(p_attn)
        return torch.matmul(p_attn, value), p_attn
    """,
)

_add(
    "factory function",
    "make_encoder",
    """
    def make_encoder(d_model, n_heads, n_layers=2):
        layer = nn.TransformerEncoderLayer(d_model, n_heads, 2 * d_model, batch_first=True)
        return nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
    """,
)

_add(
    "time step embedding",
    "DiTBlock",
    """
    class DiTBlock(nn.Module):
        def __init__(self, hidden_size, num_heads, mlp_ratio=4.0):
            super().__init__()
            self.norm1 = nn.LayerNorm(hidden_size, elementwise_affine=False)
            self.attn = nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)
            self.ada = nn.Sequential(nn.SiLU(), nn.Linear(hidden_size, 3 * hidden_size))

        def forward(self, x, c):
            shift, scale, gate = self.ada(c).chunk(3, dim=1)
            h = self.norm1(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
            return x + gate.unsqueeze(1) * self.attn(h, h, h)[0]
    """,
)

_add(
    "relative bias required",
    "BiasedAttention",
    """
    class BiasedAttention(nn.Module):
        def __init__(self, embedding_dim, attention_heads):
            super().__init__()
            self.h = attention_heads
            self.qkv, self.o = nn.Linear(embedding_dim, 3 * embedding_dim), nn.Linear(
                embedding_dim, embedding_dim)

        def forward(self, x, attn_bias):
            b, n, c = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            s = q @ k.mT / math.sqrt(c // self.h) + attn_bias
            return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
    """,
)

_add(
    "image with batch-wise window",
    "SwinBlock",
    """
    def window_partition(x, ws):
        B, H, W, C = x.shape
        x = x.view(B, H // ws, ws, W // ws, ws, C)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws * ws, C)

    class SwinBlock(nn.Module):
        def __init__(self, dim, input_resolution, num_heads, window_size=2):
            super().__init__()
            self.dim, self.input_resolution, self.ws = dim, input_resolution, window_size
            self.attn = nn.MultiheadAttention(dim, num_heads, batch_first=True)

        def forward(self, x):
            H, W = self.input_resolution
            B, L, C = x.shape
            assert L == H * W, "input feature has wrong size"
            y = window_partition(x.view(B, H, W, C), self.ws)
            y = self.attn(y, y, y, need_weights=False)[0]
            n = B * (H // self.ws) * (W // self.ws)
            y = y.view(B, H // self.ws, W // self.ws, self.ws, self.ws, C).permute(0, 1, 3, 2, 4, 5)
            assert n > 0
            return x + y.reshape(B, L, C)
    """,
)


@pytest.mark.parametrize("name", UNUSUAL)
def test_it_runs_without_configuration(name: str, opened: Callable[..., object]) -> None:
    target, source = UNUSUAL[name]
    subject = opened(source, target)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.how == "inferred"
    again = subject.rebuilt()
    assert (again.build, again.call) == (subject.build, subject.call)
    shapes = [tuple(a.shape) for a in subject.args if isinstance(a, torch.Tensor)]
    alike = [shape for shape in shapes if len(shape) == 3 and shape[0] == shape[1]]
    assert not alike, "the batch is as long as the sequence: nothing can be told from that"
    resized = next(subject.resized(), None)
    assert resized is not None, "no second size"
    assert (resized.build, resized.call) != (subject.build, subject.call)
