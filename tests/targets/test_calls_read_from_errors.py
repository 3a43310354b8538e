"""Calls that only the code's own words and errors tell: ranks, lengths, tests before a raise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

SHARED_KEYS = """
class Core(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.drop = nn.Dropout(drop)

    def forward(self, queries, keys, values):
        gain = queries.shape[-1] ** -0.5
        s = torch.einsum(f"b h i d, b j d -> b h i j", queries, keys) * gain
        return torch.einsum("b h i j, b j d -> b h i d", self.drop(s.softmax(-1)), values)
"""

RANK_ONLY_IN_THE_ERROR = """
class Core(nn.Module):
    def __init__(self):
        super().__init__()
        self.pick = ("a", "b")

    def forward(self, first, second):
        both = [t * 1.0 for t in (first, second)]
        s = torch.einsum("bhic,bhjc->bhij", both[0], both[1]) / both[0].size(-1) ** 0.5
        return torch.einsum("bhij,bhjc->bhic", s.softmax(-1), both[1])
"""

ANY_NUMBER_OF_AXES = '''
class OverAll(nn.Module):
    """Attends over all axes between heads and channels."""

    def forward(self, q, k, v):
        """
        Args:
            q: queries of shape ``(b, h, d1, ..., dn, c)``
            k, v: keys and values of shape ``(b, h, e1, ..., en, c)``
        """
        first, heads, *grid, width = q.shape
        q, k, v = (t.flatten(start_dim=2, end_dim=-2) for t in (q, k, v))
        w = (q @ k.mT / width ** 0.5).softmax(-1)
        return (w @ v).unflatten(2, grid)
'''

AXIS_TESTED_BEFORE = '''
class AlongOne(nn.Module):
    def __init__(self, axial_dim: int):
        super().__init__()
        self.axial_dim = axial_dim + 2

    def forward(self, q, k, v):
        """
        Args:
            q (Tensor): of shape ``(b, h, d1, ..., dn, c)``
            k, v (Tensor): of shape ``(b, h, d1, ..., dn, c)``
        """
        if self.axial_dim >= q.dim() - 1:
            raise ValueError("no such axis")
        q, k, v = (t.movedim(self.axial_dim, -2) for t in (q, k, v))
        w = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        return (w @ v).movedim(-2, self.axial_dim)
'''

AREA_TESTED_BEFORE = """
class InWindow(nn.Module):
    def __init__(self, width: int, heads: int, window: tuple[int, int]):
        super().__init__()
        self.window, self.heads = window, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens):
        b, n, c = tokens.shape
        if n != self.window[0] * self.window[1]:
            raise ValueError("wrong number of tokens for one window")
        q, k, v = self.qkv(tokens).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        w = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, c))
"""

ITEMS_OF_THE_REST = """
class Corrected(nn.Module):
    def forward(self, q, k, v, **extra):
        b, n, h, d = q.shape
        shift, stretch = extra["shift"], extra["stretch"]
        stretch = 1.0 if stretch is None else stretch[:, None, None, None]
        s = torch.einsum("bnhd,bmhd->bhnm", q, k) * stretch + shift[:, None, None, None]
        return torch.einsum("bhnm,bmhd->bnhd", (s / d ** 0.5).softmax(-1), v)
"""

ONE_QUESTION_PER_SAMPLE = """
class Summary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ask = nn.Linear(dim, dim, bias=False)

    def forward(self, asked, source):
        s = torch.bmm(source, self.ask(asked).unsqueeze(2)).squeeze(2)
        w = s.softmax(dim=1)
        return torch.bmm(w.unsqueeze(1), source).squeeze(1), w
"""

SHAPES_WITH_CROSSES = '''
class Summary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ask = nn.Linear(dim, dim, bias=False)

    def forward(self, state, source):
        """state: batch x dim
        source: batch x length x dim
        """
        s = (source * self.ask(state)[:, None]).sum(-1)
        w = s.softmax(dim=1)
        return (w[:, :, None] * source).sum(1), w
'''

CROSSES_IN_BRACKETS = '''
class Optional(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.tell = nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, x, y=None):
        """
        Args:
            x (torch.Tensor): input with shape [b x s_x x d] for the query
            y (torch.Tensor): second input with shape [b x s_y x d]
        """
        if y is None:
            raise ValueError("y is needed")
        k, v = self.tell(y).chunk(2, dim=-1)
        q = self.ask(x)
        return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v
'''

TABLES_OF_PAIRS = """
class Molecule(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, query, key, value, adjacency_matrix, dist):
        q, k, v = (f(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f, t in zip((self.q, self.k, self.v), (query, key, value)))
        near = (-dist).softmax(-1)
        w = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        w = 0.4 * w + 0.3 * near[:, None] + 0.3 * adjacency_matrix[:, None]
        return self.out((w @ v).transpose(1, 2).flatten(2))
"""

A_ROW_FOR_EACH_DISTANCE = """
class Relative(nn.Module):
    def __init__(self, n_head, n_feat):
        super().__init__()
        self.h = n_head
        self.q, self.k, self.v = (nn.Linear(n_feat, n_feat) for _ in range(3))
        self.pos, self.out = nn.Linear(n_feat, n_feat), nn.Linear(n_feat, n_feat)

    def split(self, t):
        return t.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, query, key, value, pos_emb):
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
        far = q @ self.split(self.pos(pos_emb)).mT
        b, h, n, m = far.shape
        far = nn.functional.pad(far, (1, 0)).view(b, h, m + 1, n)[:, :, 1:].reshape(b, h, n, m)
        s = (q @ k.mT + far[..., : m // 2 + 1]) / q.size(-1) ** 0.5
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""

A_SLICE_PAST_THE_END = """
class Near(nn.Module):
    def __init__(self, width, heads, context_size):
        super().__init__()
        self.left, self.right = context_size
        self.h = heads
        self.qkv, self.table = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, pos_emb):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        n = x.size(1)
        s = q @ k.mT / q.size(-1) ** 0.5
        p = q @ self.table(pos_emb).unflatten(-1, (self.h, -1)).transpose(1, 2).mT
        s[..., : self.left] += p[..., n + 2 : n + 2 + self.left]
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""

TWO_MASKS_IN_ONE = """
class Memory(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.h = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        kept, added = mask
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT / q.size(-1) ** 0.5 + added
        y = (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.out(y) + x * kept
"""

CLASS_THAT_LACKS_AN_ENTRY = """
class CoreConfig:
    def __init__(self, d_model=64, num_heads=8, rate=0.1):
        self.d_model, self.num_heads, self.rate = d_model, num_heads, rate


class Attention(nn.Module):
    def __init__(self, config: CoreConfig):
        super().__init__()
        self.config, self.h = config, config.num_heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def forward(self, hidden):
        how = self.config._implementation
        q, k, v = self.qkv(hidden).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v) if how == "sdpa" else (
            (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v)
        return self.out(y.transpose(1, 2).flatten(2))
"""

UNSET_UNLESS_SHARED = """
class Attention(nn.Module):
    def __init__(self, width, heads, shared_bias):
        super().__init__()
        self.h = heads
        if shared_bias is None:
            self.shared_bias = nn.Parameter(torch.zeros(heads, width // heads))
        else:
            self.shared_bias = shared_bias
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        s = (q + self.shared_bias.unsqueeze(1)) @ k.mT / q.size(-1) ** 0.5
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""

A_LAYER_FOR_THREE = """
class Exported(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.h, self.d = model.num_heads, model.head_dim
        self.first, self.last = model.qkv_layer, model.out_layer

    def forward(self, x):
        whole = self.first(x)
        q, k, v = torch.split(whole, self.h * self.d, dim=-1)
        q, k, v = (t.unflatten(-1, (self.h, self.d)).transpose(1, 2) for t in (q, k, v))
        w = (q @ k.mT / self.d ** 0.5).softmax(-1)
        return self.last((w @ v).transpose(1, 2).flatten(2))
"""

SHAPES: dict[str, tuple[str, str, list[tuple[int, ...]]]] = {
    "one head of keys": (SHARED_KEYS, "Core", [(3, 4, 7, 6), (3, 11, 6), (3, 11, 6)]),
    "operands of an einsum": (RANK_ONLY_IN_THE_ERROR, "Core", []),
    "any number of axes": (ANY_NUMBER_OF_AXES, "OverAll", [(3, 4, 7, 6), (3, 4, 11, 6)]),
    "an axis that is tested": (AXIS_TESTED_BEFORE, "AlongOne", []),
    "an area that is tested": (AREA_TESTED_BEFORE, "InWindow", [(3, 6, 24)]),
    "items of **extra": (ITEMS_OF_THE_REST, "Corrected", [(3, 7, 4, 6), (3, 11, 4, 6)]),
    "one question per sample": (ONE_QUESTION_PER_SAMPLE, "Summary", [(3, 24), (3, 11, 24)]),
    "shapes with crosses": (SHAPES_WITH_CROSSES, "Summary", [(3, 24), (3, 11, 24)]),
    "crosses in brackets": (CROSSES_IN_BRACKETS, "Optional", [(3, 7, 24)]),
    "tables of pairs": (TABLES_OF_PAIRS, "Molecule", []),
    "a row for each distance": (A_ROW_FOR_EACH_DISTANCE, "Relative", []),
    "a slice past the end": (A_SLICE_PAST_THE_END, "Near", []),
    "two masks in one": (TWO_MASKS_IN_ONE, "Memory", [(3, 7, 24)]),
    "a class that lacks an entry": (CLASS_THAT_LACKS_AN_ENTRY, "Attention", []),
    "a layer for three": (A_LAYER_FOR_THREE, "Exported", [(3, 7, 24)]),
    "unset unless shared": (UNSET_UNLESS_SHARED, "Attention", [(3, 7, 24)]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_call_is_found(name: str, opened: Any) -> None:
    source, target, shapes = SHAPES[name]
    subject = opened(source, target)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    given = [tuple(a.shape) for a in subject.args if isinstance(a, torch.Tensor)]
    assert given[: len(shapes)] == shapes, subject.call


FUSED_OR_EAGER = '''
class Attention(nn.Module):
    """Fused, or by hand; the mask is added either way."""

    def __init__(self, width, heads, how: str = "fused"):
        super().__init__()
        self.h, self.how = heads, how
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def by_hand(self, q, k, v, mask):
        s = q @ k.mT / q.size(-1) ** 0.5
        s += mask
        return s.softmax(-1) @ v

    def fused(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        attend = self.fused if self.how == "fused" else self.by_hand
        if self.how == "fused":
            y = self.fused(q, k, v, mask)
        else:
            y = self.by_hand(q, k, v, mask)
        return self.out(y.transpose(1, 2).flatten(2))
'''

FILLED_MASK = """
class Fusion(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.h = heads
        self.ask, self.tell, self.out = (nn.Linear(width, width) for _ in range(3))

    def split(self, t):
        return t.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, picture, words, words_mask=None):
        q, k, v = self.split(self.ask(picture)), self.split(self.tell(words)), self.split(words)
        s = q @ k.mT / q.size(-1) ** 0.5
        if words_mask is not None:
            held = words_mask[:, None, None, :].expand(-1, 1, q.size(2), -1)
            table = {"m": held}
            wide = table["m"]
            s = s + wide.masked_fill(wide == 0, -9e15)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""

ON_ALL_HEADS = '''
class WithMemory(nn.Module):
    def __init__(self, n_head, n_feat, kernel_size):
        super().__init__()
        assert n_feat % n_head == 0
        self.h, self.d = n_head, n_feat // n_head
        self.qkv, self.out = nn.Linear(n_feat, 3 * n_feat), nn.Linear(n_feat, n_feat)
        self.near = nn.Conv1d(n_feat, n_feat, kernel_size, padding=kernel_size // 2, groups=n_feat)

    def forward(self, x, mask):
        """Attend and remember.

        Args:
            mask (torch.Tensor): Mask tensor (#batch, 1, time2) or
                (#batch, time1, time2).
        """
        b, n, c = x.shape
        q, k, v = (t.unflatten(-1, (self.h, self.d)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        kept = torch.reshape(mask, (b, -1, 1))
        memory = self.near((x * kept).transpose(1, 2)).transpose(1, 2)
        s = q @ k.mT * self.d ** -0.5
        hidden = mask.unsqueeze(1).eq(0)
        w = s.masked_fill(hidden, -float("inf")).softmax(-1).masked_fill(hidden, 0.0)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, c)) + memory
'''


def given(subject: Subject, name: str) -> torch.Tensor:
    values = [*subject.args, *subject.kwargs.values()]
    found = dict(zip(subject.argument_names, values, strict=True))[name]
    assert isinstance(found, torch.Tensor)
    return found


def test_what_one_path_adds_is_no_truth_value_on_the_other(opened: Any) -> None:
    mask = given(opened(FUSED_OR_EAGER, "Attention"), "mask")
    assert mask.dtype == torch.float32 and not mask.any()


def test_a_mask_that_is_filled_with_numbers_is_of_numbers(opened: Any) -> None:
    mask = given(opened(FILLED_MASK, "Fusion"), "words_mask")
    assert mask.dtype == torch.float32 and bool(mask.all())


def test_heads_are_not_made_as_many_as_samples_for_a_mask(opened: Any) -> None:
    subject = opened(ON_ALL_HEADS, "WithMemory")
    assert subject.sizes["n_head"] == 4
    assert tuple(given(subject, "mask").shape) == (3, 1, 7)


THREE_HEADS = """
class Three(nn.Module):
    def __init__(self, width, num_heads=3):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        s = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(mask.unsqueeze(1) == 0, -1e9)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_there_are_never_as_many_samples_as_heads(opened: Any) -> None:
    subject = opened(THREE_HEADS, "Three")
    assert tuple(subject.args[0].shape) == (5, 7, 24)
    assert tuple(given(subject, "mask").shape) == (5, 7, 7)


def test_errors_of_an_installed_file_are_read_too(write: Any) -> None:
    path = str(write(CROSSES_IN_BRACKETS, "site-packages/package/attention.py"))
    subject = open_subject(TargetSpec(text=path, path=path, qualname="Optional"), timeout=20.0)
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert given(subject, "y").shape[-1] == 24


TOO_WIDE = """
class Pool(nn.Module):
    def __init__(self, side, embed_dim, num_heads, output_dim=None):
        super().__init__()
        self.place = nn.Parameter(torch.randn(side * side + 1, embed_dim) / embed_dim ** 0.5)
        self.attend = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.out = nn.Linear(embed_dim, output_dim or embed_dim)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.place
        return self.out(self.attend(x[:, :1], x, x)[0])[:, 0]


class Net(nn.Module):
    def __init__(self, heads: int = 1024, resolution: int = 224, width: int = 64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3)
        self.pool = Pool(resolution // 32, width * 32, heads, 512)
"""


def test_a_construction_without_a_call_gives_way_where_it_is_too_heavy(opened: Any) -> None:
    subject = opened(TOO_WIDE, "Pool")
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert isinstance(subject.module, torch.nn.Module)
    assert sum(p.numel() for p in subject.module.parameters()) < 100_000
