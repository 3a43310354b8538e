"""Head split and head merge: what varies along rows and features."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.subject import _unless_ready_made, _unless_turned
from mha_lint.model.facts import LayoutKind
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

SPLIT = "self.{}_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)"
MERGE = "context.transpose(1, 2).reshape(B, T, C)"
SCRAMBLED = "self.{}_proj(x).view(B, self.h, T, self.d_k)"


def resplit(which: str, spelled: str) -> tuple[str, str]:
    return SPLIT.format(which), spelled.format(which)


@pytest.mark.parametrize("name", SPELLINGS)
def test_right_in_every_spelling(name: str, measured: Measure, known: Known) -> None:
    spelling = SPELLINGS[name]
    site = measured(text=spelling.text, build=spelling.build, call=spelling.call).site
    for which, fact in zip("qkv", (site.split_q, site.split_k, site.split_v), strict=True):
        found = known(fact)
        assert (found.kind, found.operand) == (LayoutKind.RIGHT, which)
        assert (found.rows, found.features) == (("positions",), ("channels",))
        assert found.example == ""
    merge = known(site.merge)
    assert (merge.kind, merge.operand) == (LayoutKind.RIGHT, "context")
    assert (merge.rows, merge.features, merge.example) == (("positions",), ("heads",), "")


@pytest.mark.parametrize(
    "spelled",
    [
        "self.{}_proj(x).view(B, T, self.d_k, self.h).permute(0, 3, 1, 2)",
        "torch.stack(self.{}_proj(x).chunk(self.h, dim=-1), dim=1)",
        "self.{}_proj(x).unflatten(-1, (self.h, self.d_k)).movedim(2, 1)",
        "self.{}_proj(x).transpose(1, 2).reshape(B, self.h, self.d_k, T).transpose(2, 3)",
    ],
)
def test_other_right_splits(spelled: str, measured: Measure, known: Known) -> None:
    site = measured(*(resplit(w, spelled) for w in "qkv")).site
    for fact in (site.split_q, site.split_k, site.split_v):
        assert known(fact).kind is LayoutKind.RIGHT
    assert known(site.dims).num_heads == 4


@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_one_scrambled_split(which: str, measured: Measure, known: Known) -> None:
    case = measured(resplit(which, SCRAMBLED))
    facts = dict(zip("qkv", (case.site.split_q, case.site.split_k, case.site.split_v), strict=True))
    found = known(facts[which])
    assert (found.kind, found.operand) == (LayoutKind.SCRAMBLED, which)
    assert found.rows == ("positions", "channels")
    assert found.span.line == case.line(f"{which} = self")
    assert case.marked(found.span) == SCRAMBLED.format(which)
    # (B, T, h * d_k) read as (B, h, T, d_k): the second row is the second head's share.
    assert found.example == (
        "in the first score matrix row 0 begins with channel 0 of position 0"
        " and row 1 begins with channel 6 of position 0"
    )
    others = [known(f).kind for name, f in facts.items() if name != which]
    assert others == [LayoutKind.RIGHT] * 2


@pytest.mark.parametrize(
    "spelled",
    [
        SCRAMBLED,
        "self.{}_proj(x).reshape(B, self.h, T, self.d_k)",
        "self.{}_proj(x).transpose(1, 2).reshape(B, self.h, T, self.d_k)",
        "self.{}_proj(x).view(B, self.h, self.d_k, T).transpose(2, 3)",
    ],
)
def test_scrambled_splits(spelled: str, measured: Measure, known: Known, why: Why) -> None:
    site = measured(*(resplit(w, spelled) for w in "qkv")).site
    for fact in (site.split_q, site.split_k, site.split_v):
        assert known(fact).kind is LayoutKind.SCRAMBLED
    assert why(site.merge) == (
        "NotApplicable",
        "the head split is wrong already, and the merge answers to it",
    )


def test_rows_that_are_heads(measured: Measure, known: Known) -> None:
    case = measured(
        *(resplit(w, "self.{}_proj(x).view(B, T, self.h, self.d_k)") for w in "qkv"),
        (MERGE, "context.reshape(B, T, C)"),
    )
    for fact in (case.site.split_q, case.site.split_k, case.site.split_v):
        found = known(fact)
        assert (found.kind, found.rows) == (LayoutKind.OVER_HEADS, ("channels",))
    assert known(case.site.split_q).span.line == case.line("scores = q @")


def test_the_permutation_that_put_heads_into_rows(measured: Measure, known: Known) -> None:
    case = measured(
        *(
            resplit(w, "self.{}_proj(x).view(B, T, self.h, self.d_k).permute(1, 0, 2, 3)")
            for w in "qkv"
        ),
        (MERGE, "context.transpose(0, 1).reshape(B, T, C)"),
    )
    found = known(case.site.split_v)
    assert (found.kind, found.rows) == (LayoutKind.OVER_HEADS, ("channels",))
    assert found.span.line == case.line("v = self")


def test_a_fused_projection_cut_across_positions(measured: Measure, known: Known) -> None:
    text = SPELLINGS["fused"].text.replace(
        "view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)",
        "view(B, 3, self.h, T, self.d_k).permute(1, 0, 2, 3, 4)",
    )
    case = measured(text=text)
    for fact in (case.site.split_q, case.site.split_k, case.site.split_v):
        found = known(fact)
        assert found.kind is LayoutKind.SCRAMBLED
        assert found.span.line == case.line("self.qkv(x)")


@pytest.mark.parametrize(
    "order",
    [
        "view(B, T, self.h, 3, self.d_k).permute(3, 0, 2, 1, 4)",
        "view(B, T, self.h, self.d_k, 3).permute(4, 0, 2, 1, 3)",
    ],
)
def test_interleaved_fused_projections_are_right(
    order: str, measured: Measure, known: Known
) -> None:
    text = SPELLINGS["fused"].text.replace(
        "view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)", order
    )
    site = measured(text=text).site
    for fact in (site.split_q, site.split_k, site.split_v, site.merge):
        assert known(fact).kind is LayoutKind.RIGHT


ROTATE = """\
        angle = torch.arange(T)[:, None] / 10 ** torch.arange(self.d_k // 2)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        q, k = (z * cos + torch.cat((-z[..., 3:], z[..., :3]), -1) * sin for z in (q, k))
        scores = q @ k"""
NORM = """\
        q, k = (F.layer_norm(z, (self.d_k,)) for z in (q, k))
        scores = q @ k"""


@pytest.mark.parametrize("between", [ROTATE, NORM], ids=["rotation", "norm"])
@pytest.mark.parametrize("which", ["q", "k"])
def test_a_rotation_or_norm_does_not_hide_the_layout(
    which: str, between: str, measured: Measure, known: Known
) -> None:
    right = measured(("        scores = q @ k", between)).site
    assert known(right.split_q).kind is known(right.split_k).kind is LayoutKind.RIGHT
    case = measured(("        scores = q @ k", between), resplit(which, SCRAMBLED))
    facts = {"q": case.site.split_q, "k": case.site.split_k}
    found = known(facts.pop(which))
    assert found.kind is LayoutKind.SCRAMBLED
    assert found.span.line == case.line(f"{which} = self")
    (other,) = facts.values()
    assert known(other).kind is LayoutKind.RIGHT


# --- merge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelled",
    [
        "context.permute(0, 2, 1, 3).flatten(2)",
        "context.permute(0, 2, 3, 1).reshape(B, T, C)",
        "torch.cat(context.unbind(1), dim=-1)",
        "context.transpose(1, 2).contiguous().view(B, T, C)",
    ],
)
def test_other_right_merges(spelled: str, measured: Measure, known: Known) -> None:
    case = measured((MERGE, spelled))
    found = known(case.site.merge)
    assert found.kind is LayoutKind.RIGHT
    assert found.span.line == case.line("merged = ")


@pytest.mark.parametrize(
    ("spelled", "queries"),
    [
        ("context.reshape(B, T, C)", "0, 1, 2, 3"),
        ("context.transpose(2, 3).reshape(B, T, C)", "0, 1, 2, 3"),
        ("context.flatten(1).view(B, T, C)", "0, 1, 2, 3"),
    ],
)
def test_scrambled_merges(spelled: str, queries: str, measured: Measure, known: Known) -> None:
    case = measured((MERGE, spelled))
    found = known(case.site.merge)
    assert (found.kind, found.operand) == (LayoutKind.SCRAMBLED, "context")
    assert (found.rows, found.features) == (("positions", "heads"), ("positions",))
    assert found.example == f"the first output vector gathers the queries {queries}"
    assert found.span.line == case.line("merged = ")


def test_a_scrambled_merge_of_folded_heads(measured: Measure, known: Known) -> None:
    text = SPELLINGS["bmm"].text.replace(MERGE, "context.reshape(B, T, C)")
    case = measured(text=text)
    assert known(case.site.merge).kind is LayoutKind.SCRAMBLED
    assert known(case.site.merge).span.line == case.line("merged = ")


def test_heads_of_several_samples_in_one_vector(measured: Measure, known: Known) -> None:
    case = measured((MERGE, "context.permute(2, 1, 0, 3).reshape(T, B, C).transpose(0, 1)"))
    found = known(case.site.merge)
    assert found.kind is LayoutKind.MIXED_SAMPLES
    assert (found.rows, found.features) == (("samples",), ("samples",))
    assert found.example == "one output vector gathers heads of several samples"
    assert found.span.line == case.line("merged = ")


def test_output_vectors_dealt_out_anew(measured: Measure, known: Known) -> None:
    case = measured((MERGE, "context.permute(2, 0, 1, 3).reshape(B, T, C)"))
    found = known(case.site.merge)
    assert found.kind is LayoutKind.SCRAMBLED
    assert (found.rows, found.features) == (("positions", "samples"), ("heads",))
    assert found.example == (
        "a plain view deals the output vectors out anew: sample and position mix"
    )
    assert found.span.line == case.line("merged = ")


def test_heads_of_a_list_joined_along_the_wrong_axis(measured: Measure, known: Known) -> None:
    text = SPELLINGS["listed"].text.replace(
        "torch.cat([head(x) for head in self.heads], dim=-1)",
        "torch.cat([head(x) for head in self.heads], dim=1).reshape(x.shape)",
    )
    found = known(measured(text=text).site.merge)
    assert found.kind is LayoutKind.SCRAMBLED


def test_a_norm_of_the_context_does_not_hide_the_merge(measured: Measure, known: Known) -> None:
    normed = ("context = weights @ v", "context = F.layer_norm(weights @ v, (self.d_k,))")
    right = measured(normed)
    assert known(right.site.merge).kind is LayoutKind.RIGHT
    wrong = measured(normed, (MERGE, "context.reshape(B, T, C)"))
    assert known(wrong.site.merge).kind is LayoutKind.SCRAMBLED
    assert known(wrong.site.merge).span.line == wrong.line("merged = ")


POOL = """\
class Pool(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.asks = nn.Parameter(torch.randn(num_heads, d_model // num_heads))
        self.k_proj, self.v_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        k = self.k_proj(x).SPLIT
        v = self.v_proj(x).view(B, T, self.h, -1)
        weights = torch.einsum("hd,bthd->bth", self.asks, k).softmax(1)
        return torch.einsum("bth,bthd->bhd", weights, v).flatten(1)
"""


def test_pooling_by_a_query_for_each_head(measured: Measure, known: Known, why: Why) -> None:
    right = measured(text=POOL.replace("SPLIT", "view(B, T, self.h, -1)"), build="Pool(24, 4)")
    assert right.site.info.kind.value == "pooling"
    assert why(right.site.split_k) == (
        "NotApplicable",
        "pooling may run over channels, or over parts of tokens",
    )
    wrong = measured(
        text=POOL.replace("SPLIT", "view(B, self.h, T, -1).transpose(1, 2)"), build="Pool(24, 4)"
    )
    found = known(wrong.site.split_k)
    assert found.kind is LayoutKind.SCRAMBLED
    assert found.span.line == wrong.line("k = self.k_proj")


JOINTS = """\
class Joints(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.out = (nn.Conv2d(width, width, 1) for _ in range(3))

    def forward(self, x):
        n, c, t, v = x.shape
        q = self.a(x).permute(0, 3, 1, 2).reshape(n, v, c * t)
        k = self.b(x).reshape(n, c * t, v)
        weights = torch.softmax(q @ k / (c * t) ** 0.5, dim=-1)
        y = weights @ x.permute(0, 3, 1, 2).reshape(n, v, c * t)
        return self.out(y.reshape(n, v, c, t).permute(0, 2, 3, 1))
"""


def test_rows_that_are_compared_over_a_further_axis(measured: Measure, known: Known) -> None:
    site = measured(text=JOINTS, build="Joints(8)", call="torch.randn(2, 8, 5, 7)").site
    assert [known(f).kind for f in (site.split_q, site.split_k, site.split_v)] == ["right"] * 3


AGENTS = """\
class Agents(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.h, self.d = heads, width // heads
        self.agent, self.qkv, self.out = nn.Linear(width, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def attend(self, q, k, v):
        return (q @ k.transpose(-2, -1) / self.d**0.5).softmax(-1) @ v

    def forward(self, x):
        q, k, v = (self.split(t) for t in self.qkv(x).chunk(3, -1))
        agents = self.split(self.agent(x[:, ::2]))
        y = self.attend(q, agents, self.attend(agents, k, v))
        return self.out(y.transpose(1, 2).flatten(2))
"""


def test_values_that_are_another_context(measured: Measure, known: Known, why: Why) -> None:
    case = measured(text=AGENTS, build="Agents(24, 4)", call="torch.randn(2, 6, 24)")
    first, second = case.facts.sites
    assert why(first.merge) == (
        "NotApplicable",
        "another contraction reads the context: the heads are not merged yet",
    )
    assert known(second.merge).kind == "right"


BLOCKS = """\
class Blocks(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.h, self.d, self.block = heads, width // heads, block
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.coarse_k, self.coarse_v = (nn.Linear(block * self.d, self.d) for _ in range(2))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.h, self.d).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        k, v = (y.reshape(b, self.h, t // self.block, -1) for y in (k, v))
        k, v = self.coarse_k(k), self.coarse_v(v)
        y = (q @ k.transpose(-1, -2) / self.d**0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))
"""


def test_values_of_blocks_that_keep_their_samples(measured: Measure, known: Known) -> None:
    case = measured(text=BLOCKS, build="Blocks(24, 3, 4)", call="torch.randn(2, 12, 24)")
    assert known(case.site.merge).kind == "right"


GIVEN = """
import torch
from torch import nn


class Weigh(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, q, k, v):
        k = k
        return (q @ k * self.by).softmax(-1) @ v
"""
TURNED = "torch.randn(2, 4, 7, 6), torch.randn(2, 4, 6, 9), torch.randn(2, 4, 9, 6)"
EVEN = "torch.randn(2, 4, 7, 6), torch.randn(2, 4, 9, 6), torch.randn(2, 4, 9, 6)"


def test_keys_that_are_handed_over_transposed(measured: Measure, why: Why, known: Known) -> None:
    site = measured(text=GIVEN, build="Weigh(6**-0.5)", call=TURNED).site
    kind, reason = why(site.split_k)
    assert kind == "NotApplicable"
    assert reason == "k is given, and which of its axes are channels is not said"
    assert known(site.split_q).kind is LayoutKind.RIGHT
    assert known(site.scale).right


def test_keys_that_are_handed_over_and_torn(measured: Measure, known: Known) -> None:
    edit = ("k = k\n", "k = k.reshape(2, 4, 6, 9)\n")
    site = measured(edit, text=GIVEN, build="Weigh(6**-0.5)", call=EVEN).site
    assert known(site.split_k).kind is LayoutKind.SCRAMBLED


def test_a_guessed_call_with_turned_keys_leaves_the_scale_open(measured: Measure, why: Why) -> None:
    case = measured(text=GIVEN, build="Weigh(0.2)", call=TURNED)
    kind, reason = why(_unless_turned(case.bench.sites[0], case.site.scale))
    assert kind == "Unknown"
    assert reason == "the keys are taken as (..., width, T_k), and were guessed: pass --call"


def test_a_guessed_call_with_upright_keys_does_not(measured: Measure, known: Known) -> None:
    case = measured(("q @ k *", "q @ k.mT *"), text=GIVEN, build="Weigh(0.2)", call=EVEN)
    scale = known(_unless_turned(case.bench.sites[0], case.site.scale))
    assert (scale.right, scale.value) == (False, pytest.approx(0.2))


FOLDED = """
import torch
import torch.nn.functional as F
from torch import nn


class Weigh(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, q, k, v):
        q, k, v = (t.flatten(0, 1) for t in (q, k.transpose(2, 3).contiguous(), v))
        return F.scaled_dot_product_attention(q, k, v, scale=self.by)
"""


def test_keys_that_are_turned_back_and_folded(measured: Measure, why: Why, known: Known) -> None:
    site = measured(text=FOLDED, build="Weigh(6**-0.5)", call=TURNED).site
    reason = "k is given, and which of its axes are channels is not said"
    assert why(site.split_k) == ("NotApplicable", reason)
    assert known(site.split_q).kind is LayoutKind.RIGHT


def test_a_guessed_call_leaves_the_split_of_heads_that_came_apart_open(
    measured: Measure, why: Why, known: Known
) -> None:
    torn = ("k.transpose(2, 3).contiguous()", "k.mT.reshape(2, 4, 9, 6)")
    case = measured(torn, text=FOLDED, build="Weigh(6**-0.5)", call=EVEN)
    assert known(case.site.split_k).kind is LayoutKind.SCRAMBLED
    open_ = _unless_ready_made(case.bench.sites[0], "k", case.site.split_k)
    assert why(open_) == (
        "Unknown",
        "which axis of k holds positions was guessed: pass --call",
    )
    split_q = case.site.split_q
    assert _unless_ready_made(case.bench.sites[0], "q", split_q) is split_q


def test_a_guessed_call_leaves_no_split_of_whole_states_open(
    measured: Measure, known: Known
) -> None:
    case = measured(
        (
            "self.d_k).transpose(1, 2)\n        v",
            "self.d_k).view(B, self.h, T, self.d_k)\n        v",
        )
    )
    assert known(case.site.split_k).kind is LayoutKind.SCRAMBLED
    assert _unless_ready_made(case.bench.sites[0], "k", case.site.split_k) is case.site.split_k


SCALARS = """
class Scalars(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1, 3)

    def forward(self, x):
        q, k, v = self.qkv(x.flatten(1).unsqueeze(-1)).unbind(-1)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        return (scores.softmax(-1) @ v).view_as(x)
"""


def test_rows_that_are_samples(measured: Measure, known: Known, why: Why) -> None:
    call = {"build": "Scalars()", "call": "torch.randn(3, 1, 4, 5)"}
    case = measured(text=SCALARS, **call)
    batch = known(case.facts.batch)
    assert (batch.mixes, batch.axis) == (True, 0)
    assert case.marked(batch.span) == "q @ k.mT"
    splits = (case.site.split_q, case.site.split_k, case.site.split_v)
    told = ("NotApplicable", "attention runs over samples")
    assert [why(split) for split in splits] == [told] * 3
    level = ("x.flatten(1).unsqueeze(-1)", "F.layer_norm(x.flatten(1).unsqueeze(-1), (1,))")
    site = measured(level, text=SCALARS, **call).site  # no sample differs: nothing leaks
    splits = (site.split_q, site.split_k, site.split_v)
    assert [known(split).kind for split in splits] == [LayoutKind.OVER_BATCH] * 3


NORMED = """
class Normed(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.norm = nn.LayerNorm(d_model)
        self.qk = nn.Linear(d_model, 2 * d_model)

    def forward(self, x):
        x = self.norm(x.flatten(2).mT)
        q, k = self.qk(x).unflatten(-1, (2, self.h, -1)).permute(2, 0, 3, 1, 4)
        v = x.unflatten(-1, (self.h, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).flatten(2)
"""


def test_normed_states_themselves_as_values(measured: Measure, known: Known) -> None:
    case = measured(text=NORMED, build="Normed(24, 4)", call="torch.randn(3, 24, 4, 5)")
    assert case.bench.sites[0].v.source.channel_axes == (1,)  # type: ignore[union-attr]
    assert known(case.site.split_v).kind is LayoutKind.RIGHT
