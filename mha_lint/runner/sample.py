"""Attention that the server judges once while it waits, so that workers find all imports done."""

from __future__ import annotations

import math

import torch
from torch import nn


class Sample(nn.Module):
    """Causal attention over (B, T, width), with a padding mask (B, T) that is true where hidden."""

    def __init__(self, width: int, heads: int) -> None:
        """Make the projections."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, padding_mask: torch.Tensor) -> torch.Tensor:
        """Return (B, T, width)."""
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = later | padding_mask[:, None, None, :]
        weights = self.dropout(scores.masked_fill(hidden, float("-inf")).softmax(-1))
        output: torch.Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return output
