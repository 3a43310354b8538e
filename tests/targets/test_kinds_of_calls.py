"""Calls that need no configuration: rows, grids, graphs, rotations and dicts of the right sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject
from tests.targets.conftest import HEAD, Open

ROTATION_WITH_SAMPLES = """
class Turned(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.h, self.head_dim = num_heads, dim // num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
    def forward(self, x, rope_cos, rope_sin):
        b, t, c = x.shape
        if rope_cos.dim() != 3:
            raise ValueError("cos must be three-dimensional")
        q, k, v = self.qkv(x).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        turn = lambda z: z * rope_cos[:, None] + z.roll(1, -1) * rope_sin[:, None]
        return F.scaled_dot_product_attention(turn(q), turn(k), v)
"""

TIME_BEFORE_SAMPLES = """
class Core(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
    def forward(self, query_layer, key_layer, value_layer):
        q, k, v = [z.permute(1, 2, 0, 3) for z in [query_layer, key_layer, value_layer]]
        return F.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3)
"""

ONE_POSITION_IN_FRONT = """
class Pool(nn.Module):
    def __init__(self, spaces, width):
        super().__init__()
        self.places = nn.Parameter(torch.randn(spaces + 14, width))
        self.attn = nn.MultiheadAttention(width, 2)
    def forward(self, x):
        x = x.permute(1, 0, 2)
        x = torch.cat([x.mean(0, keepdim=True), x]) + self.places[:, None]
        return self.attn(x[:1], x, x)[0]
"""

ROWS_OF_A_GRID = """
class Down(nn.Module):
    def __init__(self, dim, resolution=14):
        super().__init__()
        self.side, self.attn = resolution, nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, x):
        b, n, c = x.shape
        few = x.view(b, self.side, self.side, c)[:, ::2, ::2].reshape(b, -1, c)
        return self.attn(few, x, x)[0]
"""

A_CLASS_TOKEN_BEFORE_THE_GRID = """
class Scales(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, x, feat_size: list[int]):
        b, n, c = x.shape
        few = x[:, 1:].reshape(b, *feat_size, c).flatten(1, 2)
        return self.attn(few, x, x)[0]
"""

SIDES_OF_SEVERAL_GRIDS = """
class Levels(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, tgt, memory, memory_spatial_shapes: list[tuple[int, int]]):
        parts = memory.split([h * w for h, w in memory_spatial_shapes], dim=1)
        return sum(self.attn(tgt, part, part)[0] for part in parts)
"""

NODES_AND_EDGES = """
class Graph(nn.Module):
    def __init__(self, in_channels, num_relations):
        super().__init__()
        self.map = nn.Linear(in_channels, in_channels)
        self.kinds = nn.Embedding(num_relations, 1)
    def forward(self, x, edge_index, edge_type=None):
        source, target = edge_index
        scores = (self.map(x)[target] * x[source]).sum(-1) / x.shape[-1] ** 0.5
        scores = scores + F.embedding(edge_type, self.kinds.weight)[:, 0]
        table = torch.full((len(x), len(x)), -1e9).index_put((target, source), scores)
        return table.softmax(-1) @ x
"""

ONE_ROW_THAT_IS_REPEATED = """
class Decode(nn.Module):
    def __init__(self, context_length, prediction_length, width):
        super().__init__()
        self.total = context_length + prediction_length
        self.places = nn.Parameter(torch.randn(context_length + prediction_length, width))
        self.join = nn.Linear(2 * width, width)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
    def forward(self, x, static):
        x = self.join(torch.cat([x, static.repeat(1, self.total, 1)], dim=-1)) + self.places
        return self.attn(x, x, x)[0]
"""

PARTS_THAT_ARE_JOINED = """
class Joined(nn.Module):
    def __init__(self, metadata):
        super().__init__()
        self.map = nn.Linear(metadata["cont_size"] + metadata["cat_size"], 24)
        self.attn = nn.MultiheadAttention(24, 2, batch_first=True)
    def forward(self, batch):
        x = self.map(torch.cat([batch["cont"], batch["cat"]], dim=-1))
        return self.attn(x, x, x)[0]
"""

BLOCKS_OF_A_LENGTH = """
class Blocks(nn.Module):
    def __init__(self, dim, span=5):
        super().__init__()
        self.span, self.attn = span, nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, x):
        b, n, c = x.shape
        x = x.view(b, n // self.span, self.span, c).flatten(0, 1)
        return self.attn(x, x, x)[0].reshape(b, n, c)
"""

MATRICES_IN_A_TUPLE = """
def turn(z, matrix, angles=None):
    \'\'\'Turn the channels of each position.

    Args:
        matrix (`torch.Tensor`): One 4x4 map of each position, of shape `(batch, seq_len, 4, 4)`.
    \'\'\'
    b, h, n, d = z.shape
    z = torch.einsum("bnij,bhnkj->bhnki", matrix, z.reshape(b, h, n, -1, matrix.shape[-1]))
    return z.reshape(b, h, n, d) if angles is None else z * angles

class Rays(nn.Module):
    def forward(self, query, key, value, ray_transforms: tuple):
        \'\'\'Attend in the space of rays.

        Args:
            query (`torch.Tensor`): Queries of shape `(B, N, H, D)`.
        \'\'\'
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        ahead, back, angles = ray_transforms
        q, k, v = turn(query, ahead, angles), turn(key, back, angles), turn(value, back, angles)
        return F.scaled_dot_product_attention(q, k, v)
"""

KINDS = {
    "matrices in a tuple": (
        MATRICES_IN_A_TUPLE,
        "Rays",
        "torch.randn(3, 7, 2, 24), torch.randn(3, 7, 2, 24), torch.randn(3, 7, 2, 24), "
        "(torch.randn(3, 7, 4, 4), torch.randn(3, 7, 4, 4), None)",
    ),
    "a rotation with samples": (
        ROTATION_WITH_SAMPLES,
        "Turned",
        "torch.randn(3, 7, 24), torch.randn(3, 7, 6), torch.randn(3, 7, 6)",
    ),
    "time before samples": (
        TIME_BEFORE_SAMPLES,
        "Core",
        "torch.randn(7, 3, 4, 6), torch.randn(11, 3, 4, 6), torch.randn(11, 3, 4, 6)",
    ),
    "one position in front": (ONE_POSITION_IN_FRONT, "Pool", "torch.randn(3, 15, 24)"),
    "rows of a grid": (ROWS_OF_A_GRID, "Down", "torch.randn(3, 196, 24)"),
    "a class token before the grid": (
        A_CLASS_TOKEN_BEFORE_THE_GRID,
        "Scales",
        "torch.randn(3, 21, 24), [4, 5]",
    ),
    "sides of several grids": (
        SIDES_OF_SEVERAL_GRIDS,
        "Levels",
        "torch.randn(3, 20, 24), torch.randn(3, 40, 24), [(4, 5), (4, 5)]",
    ),
    "nodes and edges": (
        NODES_AND_EDGES,
        "Graph",
        "torch.randn(7, 24), torch.randint(0, 7, (2, 14)), torch.randint(0, 2, (14,))",
    ),
    "one row that is repeated": (
        ONE_ROW_THAT_IS_REPEATED,
        "Decode",
        "torch.randn(3, 9, 24), torch.randn(3, 1, 24)",
    ),
    "parts that are joined": (
        PARTS_THAT_ARE_JOINED,
        "Joined",
        "{'cat': torch.randn(3, 7, 24), 'cont': torch.randn(3, 7, 24)}",
    ),
    "whole blocks": (BLOCKS_OF_A_LENGTH, "Blocks", "torch.randn(3, 15, 24)"),
}


@pytest.mark.parametrize("name", KINDS)
def test_it_is_called(name: str, opened: Open) -> None:
    source, target, call = KINDS[name]
    subject = opened(source, target)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.call == call


ONE_SAMPLE = """
class Frames(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        mask = torch.ones(n, n, dtype=torch.bool).tril().expand(b, n, n)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).squeeze(1)
"""


def test_code_that_runs_with_one_sample_only_is_called_with_one(opened: Open) -> None:
    subject = opened(ONE_SAMPLE, "Frames")
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.call == "torch.randn(1, 7, 24)"
    assert subject.notes == ("called with one sample: with several it fails",)


KEPT_KEYS = """
class Reads(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.keys, self.map = None, nn.Linear(dim, dim)
    def forward(self, memory, query):
        if self.keys is None:
            self.keys = self.map(memory)
        return (query @ self.keys.mT / query.shape[-1] ** 0.5).softmax(-1) @ self.keys
"""


def test_what_the_first_call_keeps_is_not_kept_for_the_recording(opened: Open) -> None:
    subject = opened(KEPT_KEYS, "Reads")
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert isinstance(subject.module, nn.Module)
    assert subject.module.keys is None


def test_what_another_file_builds_it_with_is_imported_from_there(
    tmp_path: Path,
) -> None:
    package = tmp_path / "decoders"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "choices.py").write_text(f"{HEAD}\ndef chosen():\n    return nn.Tanh()\n")
    (package / "attention.py").write_text(
        f"{HEAD}\nclass Chosen(nn.Module):\n"
        "    def __init__(self, act: object = nn.Tanh):\n"
        "        super().__init__()\n"
        "        self.act, self.map = act, nn.Linear(8, 8)\n"
        "    def forward(self, x):\n"
        "        q = self.act(self.map(x))\n"
        "        return (q @ q.mT / 8**0.5).softmax(-1) @ q\n"
    )
    (package / "whole.py").write_text(
        "from decoders.attention import Chosen\nfrom decoders.choices import chosen\n\n"
        "def whole():\n    return Chosen(act=chosen())\n"
    )
    path = str(package / "attention.py")
    subject = open_subject(TargetSpec(text=path, path=path, qualname="Chosen"), timeout=20.0)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.build == "Chosen(act=chosen())"
    module: Any = subject.module
    assert torch.equal(torch.tanh(torch.ones(1)), module.act(torch.ones(1)))
