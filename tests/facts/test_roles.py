"""Where q, k and v come from, what shares a weight, what lies idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import Dims, Stacked
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

ATTEND = """\
class Attend(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key, value):
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        weights = (q @ k.mT / math.sqrt(self.d_k)).softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).flatten(2))
"""
THREE = "torch.randn(2, 5, 24), torch.randn(2, 7, 24), torch.randn(2, 7, 24)"


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_has_its_projections(name: str, measured: Measure, known: Known) -> None:
    spelling = SPELLINGS[name]
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    roles = known(case.site.roles)
    assert (roles.q[0].name, roles.k[0].name, roles.v[0].name) == spelling.names[:3]
    assert (roles.same, roles.unused, roles.heads_share, roles.misfed) == ((), (), (), ())
    assert roles.value_is == "v"
    memory = "memory" if name == "cross" else "x"
    assert (roles.q[0].source, roles.k[0].source, roles.v[0].source) == (
        ("x",), (memory,), (memory,),
    )  # fmt: skip


def test_widths_places_and_declarations(measured: Measure, known: Known) -> None:
    case = measured(
        text=SPELLINGS["cross"].text,
        build="CrossAttention(24, 16, 4)",
        call="torch.randn(2, 5, 24), torch.randn(2, 7, 16)",
    )
    roles = known(case.site.roles)
    assert (roles.q[0].in_width, roles.q[0].out_width) == (24, 24)
    assert (roles.k[0].in_width, roles.k[0].out_width) == (16, 24)
    assert [case.marked(p[0].span) for p in (roles.q, roles.k, roles.v)] == [
        "self.q_proj(x)", "self.k_proj(memory)", "self.v_proj(memory)",
    ]  # fmt: skip
    assert roles.v[0].declared is None
    assert [case.marked(case.site.info.spans[w]) for w in "qkv"] == [
        "self.q_proj(x)", "self.k_proj(memory)", "self.v_proj(memory)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "q", "k", "v"),
    [
        ("view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)",
         range(24), range(24, 48), range(48, 72)),
        ("view(B, T, self.h, self.d_k, 3).permute(4, 0, 2, 1, 3)",
         range(0, 72, 3), range(1, 72, 3), range(2, 72, 3)),
    ],
)  # fmt: skip
def test_channels_of_a_fused_projection(
    order: str, q: range, k: range, v: range, measured: Measure, known: Known
) -> None:
    text = SPELLINGS["fused"].text.replace(
        "view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)", order
    )
    roles = known(measured(text=text).site.roles)
    assert [p[0].channels for p in (roles.q, roles.k, roles.v)] == [tuple(q), tuple(k), tuple(v)]
    assert roles.same == ()


@pytest.mark.parametrize(
    ("edits", "same"),
    [
        ([("k = self.k_proj(x)", "k = self.q_proj(x)")], ("qk",)),
        ([("q = self.q_proj(x)", "q = self.v_proj(x)")], ("qv",)),
        ([("v = self.v_proj(x)", "v = self.k_proj(x)")], ("kv",)),
        ([("k = self.k_proj(x)", "k = self.q_proj(x)"), ("v = self.v_proj(x)", "v = self.q_proj(x)")],
         ("qkv",)),
        ([("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = self.q_proj")], ("qk",)),
        ([("self.k_proj = nn.Linear(d_model, d_model)",
           "self.k_proj = nn.Linear(d_model, d_model)\n        self.k_proj.weight = self.q_proj.weight")],
         ("qk",)),
    ],
)  # fmt: skip
def test_shared_projections(
    edits: list[tuple[str, str]], same: tuple[str, ...], measured: Measure, known: Known
) -> None:
    assert known(measured(*edits).site.roles).same == same


def test_equal_slices_of_a_fused_projection(measured: Measure, known: Known) -> None:
    text = SPELLINGS["fused"].text.replace("        scores =", "        k = q\n        scores =")
    roles = known(measured(text=text).site.roles)
    assert roles.same == ("qk",)
    assert roles.unused == ("24 of the 72 channels of qkv.weight",)


def test_a_projection_that_lies_idle(measured: Measure, known: Known) -> None:
    site = measured(("v = self.v_proj(x)", "v = self.k_proj(x)")).site
    assert known(site.roles).unused == ("v_proj.weight",)
    assert known(site.roles).value_is == "v"


def test_values_that_are_the_keys(measured: Measure, known: Known) -> None:
    roles = known(measured(("context = weights @ v", "context = weights @ k")).site.roles)
    assert roles.value_is == "k"
    assert (roles.same, roles.unused) == (("kv",), ("v_proj.weight",))
    assert roles.v[0].name == "k_proj.weight"


def test_values_that_are_the_queries(measured: Measure, known: Known) -> None:
    roles = known(measured(("context = weights @ v", "context = weights @ q")).site.roles)
    assert roles.value_is == "q"
    assert roles.v[0].name == "q_proj.weight"


def test_heads_that_share_one_small_map(measured: Measure, known: Known) -> None:
    split = "self.{0}_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)"
    small = "self.{0}_proj(x.view(B, T, self.h, self.d_k)).transpose(1, 2)"
    edits = [
        edit
        for w in "qk"
        for edit in (
            (split.format(w), small.format(w)),
            (
                f"self.{w}_proj = nn.Linear(d_model, d_model)",
                f"self.{w}_proj = nn.Linear(self.d_k, self.d_k)",
            ),
        )
    ]
    site = measured(*edits).site
    assert known(site.roles).heads_share == ("q", "k")
    assert known(site.dims).num_heads == 4
    assert known(site.dims).d_model == 24


def test_a_list_of_heads_that_is_one_head(measured: Measure, known: Known) -> None:
    text = SPELLINGS["listed"].text.replace(
        "nn.ModuleList(Head(d_model, d_model // num_heads) for _ in range(num_heads))",
        "nn.ModuleList([Head(d_model, d_model // num_heads)] * num_heads)",
    )
    case = measured(text=text)
    roles = known(case.site.roles)
    assert roles.heads_share == ("q", "k", "v")
    assert roles.k[0].declared.line == case.line("self.heads = ")
    assert known(case.site.dims).num_heads == 4


@pytest.mark.parametrize(
    ("edit", "misfed"),
    [
        (("self.w_k(key)", "self.w_k(query)"), (("k", "query", "key"),)),
        (("self.w_v(value)", "self.w_v(key)"), (("v", "key", "value"),)),
        (("self.w_q(query)", "self.w_q(value)"), (("q", "value", "query"),)),
        (("self.w_v(value)", "self.w_v(value)"), ()),
    ],
)
def test_arguments_that_feed_another_role(
    edit: tuple[str, str], misfed: tuple[tuple[str, str, str], ...], measured: Measure, known: Known
) -> None:
    call = ", ".join(["torch.randn(2, 5, 24)"] * 3)
    case = measured(edit, text=ATTEND, build="Attend(24, 4)", call=call)
    assert known(case.site.roles).misfed == misfed


def test_keys_and_values_of_different_sources(measured: Measure, known: Known) -> None:
    case = measured(
        ("v = self.split(self.v_proj(memory))", "v = self.split(self.v_proj(x))"),
        (
            "self.v_proj = nn.Linear(source_width, d_model)",
            "self.v_proj = nn.Linear(d_model, d_model)",
        ),
        text=SPELLINGS["cross"].text,
        build="CrossAttention(24, 16, 4)",
        call="torch.randn(2, 5, 24), torch.randn(2, 5, 16)",
    )
    assert known(case.site.roles).misfed == (("v", "x", "memory"),)


LEARNED = (
    ("self.h = num_heads", "self.h = num_heads\n        self.asks = nn.Parameter(torch.randn(3, d_model))"),
    ("reshape(B, T, C)", "reshape(B, 3, C)"),
)  # fmt: skip
PROJECTED = (
    "self.q_proj(x).view(B, T, self.h, self.d_k)",
    "self.q_proj(self.asks).expand(B, 3, C).view(B, 3, self.h, self.d_k)",
)
BARE = (
    "self.q_proj(x).view(B, T, self.h, self.d_k)",
    "self.asks.expand(B, 3, C).view(B, 3, self.h, self.d_k)",
)


def test_learned_queries_that_are_projected_have_roles(measured: Measure, known: Known) -> None:
    case = measured(*LEARNED, PROJECTED)
    assert case.site.info.kind.value == "cross"
    roles = known(case.site.roles)
    (q,), (k,) = roles.q, roles.k
    assert (q.name, q.source, q.in_width) == ("q_proj.weight", (), 24)
    assert (k.name, k.source) == ("k_proj.weight", ("x",))
    assert known(case.site.dims) == Dims(24, 4, 4, 6, 6, 3, 5, 2)
    assert known(case.site.output_projection).present is True
    assert known(case.site.scale).named == "1/sqrt(head_dim)"


def test_learned_queries_with_heads_sum_what_they_compare(measured: Measure, known: Known) -> None:
    case = measured(*LEARNED, BARE, ("context = weights @ v", "context = weights @ k"))
    assert case.site.info.kind.value == "pooling"
    roles = known(case.site.roles)
    assert (roles.q, roles.value_is) == ((), "k")
    assert "v_proj.weight" in roles.unused


def test_pooling_needs_no_output_projection(measured: Measure, why: Why) -> None:
    case = measured(*LEARNED, BARE)
    assert why(case.site.dims) == ("NotApplicable", "pooling has no queries of its own")
    assert why(case.site.output_projection) == (
        "NotApplicable",
        "pooling needs no output projection",
    )


def test_a_second_map_right_behind_the_first(measured: Measure, known: Known) -> None:
    case = measured(
        (
            "self.h = num_heads",
            "self.h = num_heads\n        self.more = nn.Linear(d_model, d_model)",
        ),
        ("k = self.k_proj(x)", "k = self.k_proj(self.more(x))"),
    )
    (found,) = known(case.site.stacked)
    assert (found.first, found.second, found.operand) == ("more.weight", "k_proj.weight", "k")
    assert case.marked(found.span) == "self.k_proj(self.more(x))"


@pytest.mark.parametrize(
    "between",
    [
        "self.k_proj(torch.relu(self.more(x)))",
        "self.k_proj(F.layer_norm(self.more(x), (C,)))",
        "self.k_proj(x + self.more(x))",
    ],
)
def test_something_between_the_maps(between: str, measured: Measure, known: Known) -> None:
    case = measured(
        (
            "self.h = num_heads",
            "self.h = num_heads\n        self.more = nn.Linear(d_model, d_model)",
        ),
        ("self.k_proj(x)", between),
    )
    assert known(case.site.stacked) == ()


def test_a_low_rank_bottleneck_is_meant(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = num_heads\n        self.down = nn.Linear(d_model, 8)"),
        ("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = nn.Linear(8, d_model)"),
        ("self.k_proj(x)", "self.k_proj(self.down(x))"),
    )
    assert known(case.site.stacked) == ()


def test_a_map_behind_the_output_projection(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = num_heads\n        self.head = nn.Linear(d_model, 10)"),
        ("return self.out_proj(merged)", "return self.head(self.out_proj(merged))"),
    )
    (found,) = known(case.site.stacked)
    assert found == Stacked("out_proj.weight", "head.weight", "output", found.span)
    assert found.span.line == case.line("self.head(")


# --- overwritten inputs --------------------------------------------------------------------------

LOOP = """\
class Loop(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.d_k = d_model // num_heads
        self.qs = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(num_heads))
        self.ks = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(num_heads))
        self.vs = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(num_heads))
        self.out_proj = nn.Linear(num_heads * d_model, d_model)

    def forward(self, query, key, value):
        found = []
        for w_q, w_k, w_v in zip(self.qs, self.ks, self.vs):
            q, k, v = w_q(query), w_k(key), w_v(value)
            weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
            found.append(weights @ v)
        return self.out_proj(torch.cat(found, -1))
"""


def test_a_loop_that_keeps_its_inputs(measured: Measure, known: Known) -> None:
    case = measured(text=LOOP, build="Loop(24, 3)", call=THREE)
    assert known(case.site.overwritten) == ()
    assert known(case.site.dims).num_heads == 3


@pytest.mark.parametrize("which", ["query", "key", "value"])
def test_a_loop_that_overwrites_an_input(which: str, measured: Measure, known: Known) -> None:
    letter = which[0]
    case = measured(
        (f"w_{letter}({which})", f"w_{letter}({which})\n            {which} = {letter}")
        if which == "value"
        else ("            weights =", f"            {which} = {letter}\n            weights ="),
        text=LOOP,
        build="Loop(24, 3)",
        call=THREE,
    )
    assert known(case.site.overwritten) == (letter,)


def test_without_a_loop_nothing_is_overwritten(measured: Measure, why: Why) -> None:
    assert why(measured().site.overwritten) == (
        "NotApplicable",
        "the heads are not computed in a loop",
    )


def test_heads_that_add_what_was_found_to_data_of_their_own_are_a_cascade(
    measured: Measure, known: Known
) -> None:
    chained = (
        "            found.append(weights @ v)",
        "            query = weights @ v\n            found.append(query)",
    )
    case = measured(chained, text=LOOP, build="Loop(24, 3)", call=THREE)
    assert known(case.site.overwritten) == ("q",)
    added = (
        "            found.append(weights @ v)",
        "            made = weights @ v\n            query = made + key[:, :5]\n"
        "            found.append(made)",
    )
    case = measured(added, text=LOOP, build="Loop(24, 3)", call=THREE)
    assert known(case.site.overwritten) == ()


SLOTS = """\
class Slots(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.d_k = d_model // num_heads
        self.maps = nn.ModuleList(nn.Linear(d_model, 3 * self.d_k) for _ in range(num_heads))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        out = x
        for i, layer in enumerate(self.maps):
            q, k, v = layer(out).chunk(3, -1)
            made = (q @ k.mT / math.sqrt(self.d_k)).softmax(-1) @ v
            low, high = i * self.d_k, (i + 1) * self.d_k
            out = torch.cat([out[..., :low], made, out[..., high:]], -1)
        return self.out_proj(out)
"""


def test_results_written_into_what_the_next_head_reads(
    measured: Measure, known: Known, why: Why
) -> None:
    case = measured(text=SLOTS, build="Slots(24, 4)")
    assert known(case.site.overwritten) == ("q", "k", "v")
    assert known(case.site.dims).num_heads == 4
    assert case.site.info.spans["overwrite"].line == case.line("out = torch.cat")
    assert why(case.site.merge) == (
        "NotApplicable",
        "each head of the loop reads what the one before made",
    )
    apart = measured(("layer(out)", "layer(x)"), text=SLOTS, build="Slots(24, 4)")
    assert known(apart.site.overwritten) == ()
