"""Factories around torch's own attention modules, in every layout they offer.

mha-lint loads this file by path: a case's ``build`` and ``call`` are expressions in its namespace.
Every module is correct, so whatever is reported on one of them is a false alarm of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

WIDTH = 24
HEADS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One module: its name for the test, the expression that builds it, the arguments of a call."""

    name: str
    build: str
    call: str


class SelfAttention(nn.Module):
    """nn.MultiheadAttention on one source, (B, T, C) or (T, B, C)."""

    def __init__(self, batch_first: bool, need_weights: bool) -> None:
        super().__init__()
        self.need_weights = need_weights
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended `x`."""
        out: Tensor = self.attention(x, x, x, need_weights=self.need_weights)[0]
        return out


def multihead(batch_first: bool, **settings: int) -> nn.Module:
    """Return a bare nn.MultiheadAttention; `settings` are kdim and vdim."""
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first, **settings).eval()


def encoder_layer(batch_first: bool, norm_first: bool) -> nn.Module:
    """Return an encoder layer."""
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 32, batch_first=batch_first, norm_first=norm_first
    ).eval()


def decoder_layer(batch_first: bool, norm_first: bool) -> nn.Module:
    """Return a decoder layer: self-attention, then cross-attention."""
    return nn.TransformerDecoderLayer(
        WIDTH, HEADS, 32, batch_first=batch_first, norm_first=norm_first
    ).eval()


def transformer(batch_first: bool, norm_first: bool) -> nn.Module:
    """Return an encoder and a decoder of one layer each."""
    return nn.Transformer(
        WIDTH, HEADS, 1, 1, dim_feedforward=32, batch_first=batch_first, norm_first=norm_first
    ).eval()


def states(length: int, batch_first: bool, width: int = WIDTH) -> Tensor:
    """Return random states, (2, T, C) or (T, 2, C)."""
    return torch.randn((2, length, width) if batch_first else (length, 2, width))


def hidden_later(length: int) -> Tensor:
    """Return torch's additive causal mask (T, T)."""
    return nn.Transformer.generate_square_subsequent_mask(length)


def _cases() -> list[Case]:
    cases = []
    for first in (True, False):
        layout = "batch_first" if first else "time_first"
        own, other = f"states(7, {first})", f"states(9, {first})"
        for need in (True, False):
            weights = "weights" if need else "no_weights"
            name = f"self_{layout}_{weights}"
            cases.append(Case(name, f"SelfAttention({first}, {need}).eval()", own))
            call = f"{own}, {other}, {other}, need_weights={need}"
            cases.append(Case(f"cross_{layout}_{weights}", f"multihead({first})", call))
        call = f"{own}, states(9, {first}, 10), states(9, {first}, 14)"
        cases.append(Case(f"widths_{layout}", f"multihead({first}, kdim=10, vdim=14)", call))
        causal = f"{own}, {own}, {own}, attn_mask=hidden_later(7), is_causal=True"
        cases.append(Case(f"three_inputs_{layout}", f"multihead({first})", causal))
    for first, norm in product((True, False), (True, False)):
        kind = f"{'batch_first' if first else 'time_first'}_{'pre_norm' if norm else 'post_norm'}"
        own, other = f"states(7, {first})", f"states(9, {first})"
        cases.append(Case(f"encoder_{kind}", f"encoder_layer({first}, {norm})", own))
        call = f"{own}, {other}, tgt_mask=hidden_later(7)"
        cases.append(Case(f"decoder_{kind}", f"decoder_layer({first}, {norm})", call))
        call = f"{other}, {own}, tgt_mask=hidden_later(7)"
        cases.append(Case(f"transformer_{kind}", f"transformer({first}, {norm})", call))
    return cases


CASES = tuple(_cases())
