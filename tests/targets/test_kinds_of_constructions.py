"""Constructions that need no configuration: parts and data handed in, defaults that do not fit."""

from __future__ import annotations

import pytest

from mha_lint.targets.subject import Subject
from tests.targets.conftest import Open

POSITIONS_HANDED_IN = """
class Bend(nn.Module):
    def __init__(self, head_chs, num_heads):
        super().__init__()
        self.map = nn.Linear(head_chs, head_chs)
    def forward(self, v, size):
        h, w = size
        assert v.shape[2] == 1 + h * w
        return self.map(v)

class Attend(nn.Module):
    def __init__(self, dim, num_heads=8, bend=None):
        super().__init__()
        self.h, self.bend = num_heads, bend
        self.qkv = nn.Linear(dim, 3 * dim)
    def forward(self, x, size: tuple[int, int]):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v + self.bend(v, size=size)
        return y.transpose(1, 2).reshape(b, n, c)
"""

ONE_KERNEL_FOR_EACH_HEAD = """
class Cascade(nn.Module):
    def __init__(self, dim, num_heads=8, kernels=(3, 3, 3, 3)):
        super().__init__()
        wide = dim // num_heads
        self.parts = nn.ModuleList(
            nn.Conv1d(wide, wide, kernels[i], padding=1) for i in range(num_heads)
        )
        self.h = num_heads
    def forward(self, x):
        v = [m(c.mT).mT for m, c in zip(self.parts, x.chunk(self.h, -1))]
        w = (x @ x.mT / x.shape[-1] ** 0.5).softmax(-1)
        return torch.cat([w @ one for one in v], -1)
"""

A_WINDOW_OF_ONE_IS_REFUSED = """
class Local(nn.Module):
    def __init__(self, dim, ws=1):
        assert ws != 1
        super().__init__()
        self.ws, self.attn = ws, nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, x):
        b, n, c = x.shape
        x = F.pad(x, (0, 0, 0, -n % self.ws)).reshape(-1, self.ws, c)
        return self.attn(x, x, x)[0]
"""

A_BRANCH_THAT_CANNOT_RUN = """
class Full(nn.Module):
    def __init__(self, mask_flag=True):
        super().__init__()
        self.mask_flag = mask_flag
    def forward(self, queries, keys, values):
        scores = queries @ keys.mT / queries.shape[-1] ** 0.5
        if self.mask_flag:
            scores = scores - len
        return scores.softmax(-1) @ values
"""

PROJECTIONS_HANDED_IN = """
class Cache(nn.Module):
    def __init__(self, head_dim):
        super().__init__()

class Shared(nn.Module):
    def __init__(self, dim, num_heads, num_kv_heads, q_proj: nn.Module, k_proj: nn.Module,
                 v_proj: nn.Module, output_proj: nn.Module):
        super().__init__()
        self.h, self.g = num_heads, num_kv_heads
        self.q_proj, self.k_proj, self.v_proj = q_proj, k_proj, v_proj
        self.output_proj = output_proj
    def forward(self, x):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.h, -1).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.g, -1).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.g, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.output_proj(y.transpose(1, 2).reshape(b, t, -1))
"""

DATA_THAT_IS_ASKED = """
from enum import Enum

class Kind(Enum):
    TOKEN = 1
    FLOAT = 2

class Clicks(nn.Module):
    def __init__(self, config, dataset):
        super().__init__()
        self.names = dataset.fields(source=["user", "item"])
        sizes = []
        for name in self.names:
            if name == config["LABEL_FIELD"]:
                continue
            if dataset.types[name] == Kind.TOKEN:
                sizes.append(dataset.num(name))
        self.tables = nn.ModuleList(nn.Embedding(n, config["embedding_size"]) for n in sizes)
        self.attn = nn.MultiheadAttention(config["embedding_size"], 2, batch_first=True)
    def forward(self, batch):
        rows = []
        for name in self.names:
            rows.append(batch[name].unsqueeze(1))
        ids = torch.cat(rows, dim=1)
        x = torch.stack([m(i) for m, i in zip(self.tables, ids.unbind(1))], dim=1)
        return self.attn(x, x, x)[0]
"""

DATA_THAT_HANDS_OUT_TENSORS = """
class History(nn.Module):
    def __init__(self, width, dataset):
        super().__init__()
        self.items, self.history_lens = self.read(dataset)
        self.table = nn.Embedding(dataset.num("item"), width)
    def read(self, dataset):
        items, history_lens = dataset.matrix()
        return items.to("cpu"), history_lens.to("cpu")
    def forward(self, user, item):
        k = self.table(self.items[user])
        q = self.table(item).unsqueeze(-2)
        hidden = torch.arange(k.shape[-2]) >= self.history_lens[user].unsqueeze(-1)
        scores = (q @ k.mT).squeeze(-2) / k.shape[-1] ** 0.5
        return (scores.masked_fill(hidden, -1e9).softmax(-1).unsqueeze(-2) @ k).squeeze(-2)
"""

DATA_OF_COLUMNS = """
class Ripples(nn.Module):
    def __init__(self, width, dataset):
        super().__init__()
        pairs = dataset.pairs(form="coo").astype("float")
        self.after = dict(zip(pairs.row.tolist(), pairs.col.tolist()))
        self.table = nn.Embedding(dataset.num("item"), width)
    def forward(self, item):
        x = self.table(item)
        y = self.table(torch.tensor([[self.after[i] for i in row] for row in item.tolist()]))
        return (x @ y.mT / x.shape[-1] ** 0.5).softmax(-1) @ y
"""

ENTRIES_THAT_THE_CLASS_SETS_ITSELF = """
from dataclasses import dataclass

@dataclass
class Config:
    width: int = 512
    heads: int = 8
    latent: dict | None = None
    def __post_init__(self):
        for name, value in (self.latent or {}).items():
            setattr(self, name, value)

class Latent(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.q = nn.Linear(config.width, config.heads * config.qk_head_dim)
        self.kv = nn.Linear(config.width, config.heads * (config.qk_head_dim + config.v_head_dim))
    def forward(self, x):
        c, (b, t, _) = self.config, x.shape
        q = self.q(x).view(b, t, c.heads, c.qk_head_dim).transpose(1, 2)
        still, turned = q.split([c.qk_nope_dim, c.qk_rope_dim], -1)
        k, v = self.kv(x).view(b, t, c.heads, -1).transpose(1, 2).split(
            [c.qk_head_dim, c.v_head_dim], -1)
        return F.scaled_dot_product_attention(torch.cat([still, turned], -1), k, v)
"""

PAIRS_AND_WORDS = """
class Table(nn.Module):
    def __init__(self, cat_dims: list, config):
        super().__init__()
        width = sum(y for x, y in cat_dims)
        self.maps = nn.ModuleList(
            nn.Linear(width, int(units)) for units in config.layers.split("-")
        )
        self.act = getattr(nn, config.activation)()
    def forward(self, x):
        q = k = v = self.act(self.maps[0](x))
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
"""

DIMENSIONS_OF_SPACE = """
class Space(nn.Module):
    def __init__(self, spatial_dims, dim):
        super().__init__()
        if spatial_dims not in (2, 3):
            raise ValueError("only 2D and 3D")
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[spatial_dims]
        self.qkv = conv(dim, 3 * dim, 1)
    def forward(self, x):
        q, k, v = self.qkv(x).flatten(2).mT.chunk(3, -1)
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
"""

ATTENTION_THAT_SLEEPS = """
class Trees(nn.Module):
    def __init__(self, dim, tree_attention=False):
        super().__init__()
        self.tree_attention = tree_attention
        self.map = nn.Linear(dim, dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, x):
        x = self.map(x)
        if self.tree_attention:
            x = self.mixed(x)
        return x
    def mixed(self, x):
        return self.attn(x, x, x)[0]
"""

KINDS = {
    "a part that a default leaves out": (
        POSITIONS_HANDED_IN,
        "Attend",
        "Attend(dim=24, num_heads=4, bend=Bend(head_chs=6, num_heads=4))",
        "torch.randn(3, 21, 24), (4, 5)",
    ),
    "a default that is too short for another": (
        ONE_KERNEL_FOR_EACH_HEAD,
        "Cascade",
        "Cascade(dim=24, num_heads=4)",
        "torch.randn(3, 7, 24)",
    ),
    "a default that is refused": (
        A_WINDOW_OF_ONE_IS_REFUSED,
        "Local",
        "Local(dim=24, ws=3)",
        "torch.randn(3, 7, 24)",
    ),
    "projections": (
        PROJECTIONS_HANDED_IN,
        "Shared",
        "Shared(dim=24, num_heads=4, num_kv_heads=2, q_proj=nn.Linear(24, 24), "
        "k_proj=nn.Linear(24, 12), v_proj=nn.Linear(24, 12), output_proj=nn.Linear(24, 24))",
        "torch.randn(3, 7, 24)",
    ),
    "data that is asked": (
        DATA_THAT_IS_ASKED,
        "Clicks",
        "Clicks(config={'embedding_size': 24, 'LABEL_FIELD': 'label_field'}, "
        "dataset=SimpleNamespace(fields=lambda *_, **__: ['first', 'second'], "
        "types=AnyKey(Kind.TOKEN), num=lambda *_, **__: 29))",
        "{'first': torch.randint(0, 5, (3,)), 'second': torch.randint(0, 5, (3,))}",
    ),
    "data that hands out tensors": (
        DATA_THAT_HANDS_OUT_TENSORS,
        "History",
        "History(width=24, dataset=SimpleNamespace(matrix=lambda *_, **__: "
        "(torch.randint(0, 29, (29, 7)), torch.randint(1, 7, (29,))), num=lambda *_, **__: 29))",
        "torch.randint(0, 29, (3, 7)), torch.randint(0, 29, (3, 7))",
    ),
    "data of columns": (
        DATA_OF_COLUMNS,
        "Ripples",
        "Ripples(width=24, dataset=SimpleNamespace(pairs=lambda *_, **__: SimpleNamespace("
        "astype=lambda *_, **__: SimpleNamespace(row=torch.arange(29), col=torch.arange(29))), "
        "num=lambda *_, **__: 29))",
        "torch.randint(0, 29, (3, 7))",
    ),
    "entries that a config class sets itself": (
        ENTRIES_THAT_THE_CLASS_SETS_ITSELF,
        "Latent",
        "Latent(config=SimpleNamespace(width=24, heads=4, qk_head_dim=48, v_head_dim=6, "
        "qk_nope_dim=24, qk_rope_dim=24))",
        "torch.randn(3, 7, 24)",
    ),
    "pairs and words": (
        PAIRS_AND_WORDS,
        "Table",
        "Table(cat_dims=[(24, 24), (24, 24)], "
        "config=SimpleNamespace(activation='GELU', layers='24-24'))",
        "torch.randn(3, 7, 48)",
    ),
    "dimensions of space": (
        DIMENSIONS_OF_SPACE,
        "Space",
        "Space(spatial_dims=2, dim=24)",
        "torch.randn(3, 24, 4, 5)",
    ),
    "attention that a flag puts to sleep": (
        ATTENTION_THAT_SLEEPS,
        "Trees",
        "Trees(dim=24, tree_attention=True)",
        "torch.randn(3, 7, 24)",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_it_is_built_and_called(name: str, opened: Open) -> None:
    source, target, build, call = KINDS[name]
    subject = opened(source, target)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert (subject.build, subject.call) == (build, call)


def test_a_flag_is_switched_and_said_where_its_code_does_not_run(opened: Open) -> None:
    subject = opened(A_BRANCH_THAT_CANNOT_RUN, "Full")
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.build == "Full(mask_flag=False)"
    assert subject.notes == ("mask_flag=False (inferred): with True it fails",)
