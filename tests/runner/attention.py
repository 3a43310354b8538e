"""The source of one small attention module, right or wrong, that the tests of this folder judge."""

from __future__ import annotations

_SOURCE = """\
import math
import os
import time

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        FIRST

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.out(torch.softmax(scores, dim=DIM) @ v)
"""


def attention(first: str = "pass", *, dim: int = -1) -> str:
    """Return the source; `first`: what its constructor ends with; `dim`: -2 is a fault, MHA204."""
    return _SOURCE.replace("FIRST", first).replace("DIM", str(dim))


RIGHT, WRONG = attention(), attention(dim=-2)
