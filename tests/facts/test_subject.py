"""What is put together: names and places of sites, masks, several sites in one module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.subject import measure
from mha_lint.model.facts import Kind, SiteFacts, SubjectFacts, Unknown
from tests.facts.conftest import PLAIN
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

SCALE = "        scores = scores / math.sqrt(self.d_k)\n"


FAMILIES = frozenset(
    [
        "half_loss",
    ]
)
"""Facts that are declared and not measured yet."""


def test_every_fact_is_measured(measured: Measure) -> None:
    case = measured()
    for one in (case.facts, case.site):
        for field in fields(one):
            fact = getattr(one, field.name)
            open_ = isinstance(fact, Unknown) and fact.why == "not measured"
            assert not open_ or field.name in FAMILIES, field.name
    assert {f.name for f in fields(SiteFacts)} > {"dims", "scale"}
    assert {f.name for f in fields(SubjectFacts)} > {"batch", "truncation"}


def test_the_identity_of_a_site(measured: Measure) -> None:
    case = measured()
    info = case.site.info
    assert (info.id, info.module, info.kind, info.owner_class) == ("MHA.0", "", Kind.SELF, "MHA")
    assert (info.mask, info.repeated) == ("none", 1)
    assert (case.facts.name, case.marked(case.facts.span)) == ("MHA", "class MHA(nn.Module):")


def test_the_places_of_a_site(measured: Measure) -> None:
    case = measured()
    assert {role: case.marked(span) for role, span in case.site.info.spans.items()} == {
        "site": "weights @ v",
        "scores": "q @ k.transpose(-2, -1)",
        "scale": "scores / math.sqrt(self.d_k)",
        "softmax": "scores.softmax(dim=-1)",
        "value": "weights @ v",
        "merge": "context.transpose(1, 2).reshape(B, T, C)",
        "output": "self.out_proj(merged)",
        "q": "self.q_proj(x)",
        "k": "self.k_proj(x)",
        "v": "self.v_proj(x)",
    }


@pytest.mark.parametrize(
    ("edit", "mask"),
    [
        ("scores.masked_fill(torch.ones(T, T).triu(1).bool(), float('-inf'))", "causal"),
        ("scores + torch.full((T, T), float('-inf')).triu(1)", "causal"),
        ("torch.where(torch.ones(T, T).tril().bool(), scores, -1e9)", "causal"),
        ("scores.masked_fill(torch.ones(T, T).triu(2).bool(), float('-inf'))", "given"),
        ("scores.masked_fill(torch.ones(T, T).tril(-1).bool(), float('-inf'))", "given"),
        ("scores.masked_fill(torch.zeros(T, T).bool(), float('-inf'))", "given"),
        ("scores + 1", "none"),
    ],
)
def test_masks(edit: str, mask: str, measured: Measure) -> None:
    case = measured((SCALE, SCALE + f"        scores = {edit}\n"))
    assert case.site.info.mask == mask


def test_the_mask_of_sdpa(measured: Measure) -> None:
    text = SPELLINGS["sdpa"].text.replace("(q, k, v)\n", "(q, k, v, is_causal=True)\n")
    assert measured(text=text).site.info.mask == "causal"


def test_causal_with_a_cache(measured: Measure) -> None:
    text = PLAIN.replace("def forward(self, x):", "def forward(self, x, past):").replace(
        "        scores = q @",
        "        past = past.view(B, -1, self.h, self.d_k).transpose(1, 2)\n"
        "        k, v = torch.cat((past, k), 2), torch.cat((past, v), 2)\n"
        "        hidden = torch.ones(T, T + 3).triu(4).bool()\n"
        "        scores = q @",
    )
    text = text.replace(
        "scores / math.sqrt(self.d_k)", "(scores / math.sqrt(self.d_k)).masked_fill(hidden, -1e9)"
    )
    case = measured(text=text, call="torch.randn(2, 5, 24), torch.randn(2, 3, 24)")
    assert case.site.info.mask == "causal"
    assert case.site.info.kind is Kind.SELF


def test_sites_of_two_layers(measured: Measure, known: Known) -> None:
    stack = """

class Stack(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.first = MHA(d_model, 4)
        self.second = MHA(d_model, 3)

    def forward(self, x):
        return self.second(self.first(x))
"""
    case = measured(text=PLAIN + stack, build="Stack(24)")
    one, two = case.facts.sites
    assert [(s.info.id, s.info.module, s.info.owner_class) for s in (one, two)] == [
        ("MHA.0", "first", "MHA"),
        ("MHA.1", "second", "MHA"),
    ]
    assert (known(one.dims).num_heads, known(two.dims).num_heads) == (4, 3)
    assert known(one.roles).q[0].name == "first.q_proj.weight"
    assert known(two.roles).q[0].name == "second.q_proj.weight"
    assert known(two.output_projection).name == "second.out_proj.weight"


def test_self_and_cross_in_one_layer(measured: Measure, known: Known) -> None:
    layer = """

class Layer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.own = MHA(d_model, num_heads)
        self.other = CrossAttention(d_model, d_model, num_heads)

    def forward(self, x, memory):
        x = x + self.own(x)
        return x + self.other(x, memory)
"""
    case = measured(
        text=PLAIN + "\n\n" + SPELLINGS["cross"].text + layer,
        build="Layer(24, 4)",
        call="torch.randn(2, 5, 24), torch.randn(2, 7, 24)",
    )
    assert [(s.info.id, s.info.kind) for s in case.facts.sites] == [
        ("MHA.0", Kind.SELF),
        ("CrossAttention.0", Kind.CROSS),
    ]
    assert known(case.facts.sites[1].dims).t_k == 7


def test_helpers_that_serve_all_operands_are_no_place_of_one(measured: Measure) -> None:
    text = PLAIN.replace("self.q_proj(x)", "self.map(self.q_proj, x)").replace(
        "self.k_proj(x)", "self.map(self.k_proj, x)"
    )
    text = text.replace("self.v_proj(x)", "self.map(self.v_proj, x)").replace(
        "    def forward",
        "    def map(self, layer, x):\n        return layer(x)\n\n    def forward",
    )
    case = measured(text=text)
    assert [case.marked(case.site.info.spans[w]) for w in "qkv"] == [
        "self.map(self.q_proj, x)", "self.map(self.k_proj, x)", "self.map(self.v_proj, x)",
    ]  # fmt: skip


def test_a_wrong_split_says_nothing_of_shared_channels(measured: Measure, known: Known) -> None:
    text = SPELLINGS["fused"].text.replace(
        "view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)",
        "view(B, 3, self.h, T, self.d_k).permute(1, 0, 2, 3, 4)",
    )
    roles = known(measured(text=text).site.roles)
    assert (roles.same, roles.heads_share, roles.unused) == ((), (), ())


def test_a_scale_for_heads_that_a_guess_widened(measured: Measure, known: Known) -> None:
    # Pairs of an odd number of channels have one more: only a stated width says that it is meant.
    case = measured(
        (
            "        scores = q @",
            "        q, k = (torch.cat((z, z[..., :1]), -1) for z in (q, k))\n        scores = q @",
        ),
    )
    assert not known(case.site.scale).right
    recipe = replace(case.subject.recipe, how="inferred")
    guessed = replace(case.subject, recipe=recipe)
    assert measure(guessed, case.bench).facts.sites[0].scale == Unknown(
        "the guessed width does not fit: heads have channels of their own: pass --build"
    )


def test_measuring_twice_gives_the_same(measured: Measure, tmp_path: Path) -> None:
    from tests.facts.conftest import BUILD, CALL, HEADER, measure_file

    file = tmp_path / "attention.py"
    file.write_text(HEADER + PLAIN)
    one = measure_file(file, "MHA", BUILD, CALL).facts
    two = measure_file(file, "MHA", BUILD, CALL).facts
    assert one == two
