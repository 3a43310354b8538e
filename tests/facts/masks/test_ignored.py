"""Masks that are given or built and that no attention reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.mask_facts import IgnoredMask
from tests.facts.conftest import PLAIN
from tests.facts.masks.masked import CROSS as DECODER
from tests.facts.masks.masked import CROSS_CALL as DECODER_CALL
from tests.facts.masks.masked import IDS
from tests.facts.masks.spelled import fused, masked

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

MASKED_CALL = "torch.randn(2, 5, 24), torch.arange(5)[None] < torch.tensor([[5], [3]])"
SOFTMAX = "        weights = scores.softmax(dim=-1)\n"


def given(text: str, name: str = "keep") -> str:
    return text.replace("forward(self, x)", f"forward(self, x, {name})")


def ignored(case: Case) -> tuple[IgnoredMask, ...]:
    fact: Any = case.facts.ignored_masks
    found: tuple[IgnoredMask, ...] = fact.value
    return found


# --- thrown away -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "scores.masked_fill(~keep[:, None, None], -1e9)",
        "hidden = scores.masked_fill(~keep[:, None, None], -1e9)",
        "torch.where(keep[:, None, None], scores, -1e9)",
        "scores.clone()[(~keep)[:, None, None].expand_as(scores)] = -1e9",
        "scores + torch.zeros(2, 1, 1, T).masked_fill(~keep[:, None, None], -1e9)",
    ],
)
def test_the_result_of_a_fill_is_thrown_away(line: str, measured: Measure) -> None:
    case = measured(text=given(masked(line)), call=MASKED_CALL)
    (found,) = ignored(case)
    assert (found.name, found.how, found.named, found.inputs) == ("", "discarded", True, ("keep",))
    assert found.span is not None and found.span.line == case.line(line)


def test_a_mask_that_hides_nothing_in_this_call_is_thrown_away_too(measured: Measure) -> None:
    line = "scores.masked_fill(~keep[:, None, None, :], -1e9)"
    call = "torch.randn(2, 5, 24), torch.ones(2, 5, dtype=torch.bool)"
    case = measured(text=given(masked(line)), call=call)
    (found,) = ignored(case)
    assert (found.how, found.inputs) == ("discarded", ("keep",))
    assert found.span is not None and found.span.line == case.line(line)


def test_a_masked_copy_that_is_stored_beside_a_right_mask(measured: Measure) -> None:
    text = given(masked("gone = ~keep[:, None, None]", "scores = scores.masked_fill(gone, -1e9)"))
    text = text.replace(SOFTMAX, SOFTMAX + "        self.shown = weights.masked_fill(gone, 0)\n")
    assert ignored(measured(text=text, call=MASKED_CALL)) == ()


# --- never read ------------------------------------------------------------------------------------


def test_an_argument_that_nothing_reads(measured: Measure) -> None:
    case = measured(text=given(PLAIN, "mask"), call=MASKED_CALL)
    (found,) = ignored(case)
    assert (found.name, found.how, found.shape, found.dtype) == ("mask", "unread", (2, 5), "bool")
    assert (found.named, found.made) == (True, None)
    assert case.marked(found.span) == "scores.softmax(dim=-1)"


def test_a_fused_call_that_does_not_get_it(measured: Measure) -> None:
    text = given(fused("dropout_p=0.0"), "attn_mask")
    call = "torch.randn(2, 5, 24), torch.zeros(5, 5).masked_fill(torch.eye(5) > 0, -1e9)"
    case = measured(text=text, call=call)
    (found,) = ignored(case)
    assert (found.name, found.how, found.dtype) == ("attn_mask", "unread", "float32")
    assert found.span is not None and found.span.line == case.line("scaled_dot_product_attention")


def test_a_mask_by_its_form_alone(measured: Measure) -> None:
    (found,) = ignored(measured(text=given(PLAIN, "flags"), call=MASKED_CALL))
    assert (found.name, found.named) == ("flags", False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x_lens", "torch.tensor([5, 3])"),
        ("attention_mask", "torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])"),
        ("pad_mask", "torch.zeros(2, 5)"),
    ],
)
def test_lengths_and_numbers_need_a_name(name: str, value: str, measured: Measure) -> None:
    (found,) = ignored(measured(text=given(PLAIN, name), call=f"torch.randn(2, 5, 24), {value}"))
    assert (found.name, found.named) == (name, True)
    other = measured(text=given(PLAIN, "extra"), call=f"torch.randn(2, 5, 24), {value}")
    assert ignored(other) == ()


@pytest.mark.parametrize(
    "value", ["torch.tensor([True, False])", "torch.randn(2, 5) > 9", "torch.ones(2, 7).bool()"]
)
def test_other_forms_are_no_masks(value: str, measured: Measure) -> None:
    found = ignored(measured(text=given(PLAIN, "flags"), call=f"torch.randn(2, 5, 24), {value}"))
    assert [m.shape for m in found] == ([(2, 5)] if "randn" in value else [])


@pytest.mark.parametrize(
    "lines",
    [
        "        for i, n in enumerate(lengths.tolist()):\n            scores[i, :, :, n:] = -1e9\n",
        "        scores = scores[..., : int(lengths.max())]\n        v = v[:, :, : int(lengths.max())]\n",
    ],
)
def test_what_python_reads_is_read(lines: str, measured: Measure) -> None:
    text = given(masked(), "lengths").replace(SOFTMAX, lines + SOFTMAX)
    assert ignored(measured(text=text, call="torch.randn(2, 5, 24), torch.tensor([3, 3])")) == ()


def test_a_mask_that_only_pools_is_read(measured: Measure) -> None:
    text = given(PLAIN).replace(
        "return self.out_proj(merged)", "return (self.out_proj(merged) * keep[..., None]).sum(1)"
    )
    assert ignored(measured(text=text, call=MASKED_CALL)) == ()


def test_a_mask_whose_pairs_are_hidden_otherwise(measured: Measure) -> None:
    text = given(fused("is_causal=True"), "attn_mask")
    call = "torch.randn(2, 5, 24), torch.ones(5, 5).triu(1).bool()"
    assert ignored(measured(text=text, call=call)) == ()


LAYERS = """

class Layer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.attn = MHA(d_model, 4)

    def forward(self, x, keep=None):
        return x + self.attn(x)


class Stack(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.layers = nn.ModuleList([Layer(d_model), Layer(d_model)])

    def forward(self, x, mask):
        bias = mask[:, None, None]
        for layer in self.layers:
            x = layer(x, keep=bias)
        return x
"""


def test_the_layer_that_keeps_it_to_itself(measured: Measure) -> None:
    case = measured(text=PLAIN + LAYERS, build="Stack(24)", call=MASKED_CALL)
    (found,) = ignored(case)
    assert (found.name, found.how) == ("mask", "unread")
    assert case.marked(found.span) == "self.attn(x)"


def test_the_stack_that_does_not_hand_it_on(measured: Measure) -> None:
    text = PLAIN + LAYERS.replace("layer(x, keep=bias)", "layer(x)")
    case = measured(text=text, build="Stack(24)", call=MASKED_CALL)
    (found,) = ignored(case)
    assert case.marked(found.span) == "layer(x)"


def test_a_name_that_is_bound_to_none(measured: Measure) -> None:
    text = given(masked("bias = keep[:, None, None]", "bias = None", "assert bias is None"))
    case = measured(text=text, call=MASKED_CALL)
    (found,) = ignored(case)
    assert case.marked(found.span) == "bias = None"


CROSS = """\
class Cross(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)

    def forward(self, x, memory, x_mask, memory_mask):
        y, _ = self.attn(x, memory, memory, key_padding_mask=memory_mask)
        return y
"""


def test_a_mask_of_queries_has_nothing_to_hide(measured: Measure) -> None:
    masks = "torch.zeros(2, 3).bool(), torch.arange(5) > torch.tensor([[5], [3]])"
    call = f"torch.randn(2, 3, 24), torch.randn(2, 5, 24), {masks}"
    assert ignored(measured(text=CROSS, build="Cross(24, 4)", call=call)) == ()
    text = CROSS.replace(", key_padding_mask=memory_mask", "")
    case = measured(text=text, build="Cross(24, 4)", call=call)
    (found,) = ignored(case)
    assert found.name == "memory_mask"
    assert case.marked(found.span) == "self.attn(x, memory, memory)"


# --- built, and not passed on ----------------------------------------------------------------------


def test_a_mask_made_from_lengths_and_returned(measured: Measure) -> None:
    line = "valid = torch.arange(T) < lengths[:, None]"
    text = given(masked(line), "lengths").replace(
        "return self.out_proj(merged)", "return self.out_proj(merged), valid"
    )
    case = measured(text=text, call="torch.randn(2, 5, 24), torch.tensor([5, 3])")
    (found,) = ignored(case)
    assert (found.how, found.shape, found.inputs) == ("built", (2, 5), ("lengths",))
    assert case.marked(found.span) == "scores.softmax(dim=-1)"
    assert found.made is not None and found.made.line == case.line(line)


def test_a_mask_over_the_channels_of_positions_is_none_of_keys(measured: Measure) -> None:
    line = "valid = (torch.arange(T) < lengths[:, None])[..., None]"
    text = given(masked(line), "lengths").replace(
        "return self.out_proj(merged)", "return self.out_proj(merged), valid"
    )
    case = measured(text=text, call="torch.randn(2, 5, 24), torch.tensor([5, 3])")
    assert (2, 5, 1) not in [m.shape for m in ignored(case)]


@pytest.mark.parametrize(
    "lines",
    [
        ("        picture = (ids == 0)[..., None]\n        word = ~picture\n"),
        ("        chosen = ids == 17\n"),
        ("        chosen = ids != 17\n        twice = chosen & chosen\n"),
    ],
)
def test_ids_of_one_kind_are_told_from_others(lines: str, measured: Measure) -> None:
    edits = (
        ("        real = ids != 0\n        keep = real[:, None, None, :]\n", lines),
        ("attn_mask=keep", "is_causal=True"),
        (", padding_idx=0", ""),
    )
    assert ignored(measured(*edits, text=IDS, call="torch.randint(0, 30, (2, 6))")) == ()


def test_ids_of_padding_are_no_kind_of_their_own(measured: Measure) -> None:
    edits = (
        (
            "        real = ids != 0\n        keep = real[:, None, None, :]\n",
            "        real = ids != 9\n",
        ),
        ("attn_mask=keep", "is_causal=True"),
        ("padding_idx=0", "padding_idx=9"),
    )
    case = measured(*edits, text=IDS, call="torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 9, 9]])")
    (found,) = ignored(case)
    assert (found.how, found.inputs, found.shape) == ("built", ("ids",), (2, 5))


def test_a_triangle_that_is_not_passed_on(measured: Measure) -> None:
    (found,) = ignored(measured(text=masked("causal = torch.ones(T, T).tril().bool()")))
    assert (found.how, found.inputs) == ("built", ())


def test_a_triangle_beside_the_causal_flag(measured: Measure) -> None:
    text = fused("is_causal=True", "mask = torch.ones(T, T, dtype=torch.bool).tril()")
    assert ignored(measured(text=text)) == ()


@pytest.mark.parametrize(
    "lines",
    [
        ("assert (torch.arange(T) < keep.sum(-1, keepdim=True)).any()",),
        ("shown = torch.rand(2, T) < 0.5",),
        ("order = torch.zeros(2, T).scatter(1, keep.long(), 1.0)",),
        ("every = torch.ones(2, T)",),
    ],
)
def test_what_is_no_mask(lines: tuple[str, ...], measured: Measure) -> None:
    text = given(masked("scores = scores.masked_fill(~keep[:, None, None], -1e9)", *lines))
    assert ignored(measured(text=text, call=MASKED_CALL)) == ()


def test_a_mask_that_the_attention_knows_otherwise(measured: Measure) -> None:
    text = given(masked("scores = scores.masked_fill(~keep[:, None, None], -1e9)")).replace(
        "return self.out_proj(merged)", "return self.out_proj(merged), ~keep[:, ::2]"
    )
    assert ignored(measured(text=text, call=MASKED_CALL)) == ()


def test_no_attention(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    text = """\
class Plain(nn.Module):
    def forward(self, x):
        return x
"""
    fact = measured(text=text, build="Plain()").facts.ignored_masks
    assert why(fact) == ("NotApplicable", "no attention was found")


# --- kept in a buffer, and never read --------------------------------------------------------------

BUFFER = """\
        self.register_buffer("tri", torch.ones(9, 9).tril())
        self.out_proj ="""


def test_a_triangle_in_a_buffer(measured: Measure) -> None:
    case = measured(text=PLAIN.replace("        self.out_proj =", BUFFER))
    (found,) = ignored(case)
    assert (found.name, found.how, found.shape) == ("tri", "built", (9, 9))
    assert case.marked(found.span) == "scores.softmax(dim=-1)"
    assert found.made is not None and found.made.line == case.line("register_buffer")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.ones(9, 9).tril()", "torch.rand(9, 9)"),
        ("torch.ones(9, 9).tril()", "torch.ones(4, 4).tril()"),
        ("        weights =", "        shown = self.tri.shape\n        weights ="),
    ],
)
def test_other_buffers(old: str, new: str, measured: Measure) -> None:
    text = PLAIN.replace("        self.out_proj =", BUFFER).replace(old, new)
    assert ignored(measured(text=text)) == ()


def test_a_triangle_beside_the_flag_of_the_fused_call(measured: Measure) -> None:
    text = fused("is_causal=True").replace("        self.out_proj =", BUFFER)
    assert ignored(measured(text=text)) == ()


def test_a_mask_of_labels_is_not_about_the_keys(measured: Measure) -> None:
    text = given(masked("known = labels != -100"), "labels").replace(
        "return self.out_proj(merged)", "return self.out_proj(merged), known"
    )
    labels = "torch.tensor([[1, 2, 3, 4, 5], [-100, 1, 2, 3, 4]])"
    assert ignored(measured(text=text, call=f"torch.randn(2, 5, 24), {labels}")) == ()


def test_lengths_that_hide_nothing_in_this_call(measured: Measure) -> None:
    text = given(masked("gone = torch.arange(T) >= lengths[:, None]"), "lengths")
    (found,) = ignored(measured(text=text, call="torch.randn(2, 5, 24), torch.tensor([5, 5])"))
    assert (found.how, found.shape, found.inputs) == ("built", (2, 5), ("lengths",))


# --- masks of other states, and one of several kinds -------------------------------------------------

KINDS = """\
class Inner(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, visible):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.h)
        scores = scores.masked_fill(~visible, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))


class Kinds(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner = Inner(d_model, num_heads)

    def forward(self, x):
        place = torch.arange(x.shape[1])
        gap = place[:, None] - place
        masks = {"all": gap >= 0, "near": (gap >= 0) & (gap < 2)}
        return self.inner(x, masks["all"])
"""


def test_a_mask_for_another_kind_of_layer(measured: Measure) -> None:
    case = measured(text=KINDS, build="Kinds(24, 4)", call="torch.randn(2, 5, 24)")
    assert ignored(case) == ()


def test_a_mask_that_stands_for_no_other(measured: Measure) -> None:
    edit = ('self.inner(x, masks["all"])', "self.inner(x, gap > -9)")
    case = measured(edit, text=KINDS, build="Kinds(24, 4)", call="torch.randn(2, 5, 24)")
    assert {(m.how, m.shape) for m in ignored(case)} == {("built", (5, 5))}


def test_a_mask_of_states_that_the_call_leaves_out(measured: Measure) -> None:
    taken = "forward(self, x, picture_states=None, picture_mask=None)"
    call = "torch.randn(2, 5, 24), None, torch.ones(2, 5, dtype=torch.bool)"
    assert ignored(measured(("forward(self, x)", taken), call=call)) == ()
    alone = taken.replace("picture_states", "scale")
    assert [m.name for m in ignored(measured(("forward(self, x)", alone), call=call))] == [
        "picture_mask"
    ]


def test_a_nameless_mask_may_be_that_of_the_other_sequence(measured: Measure) -> None:
    edits = (
        ("tgt, memory, tgt_keep, memory_keep)", "tgt, memory, mask, key_mask)"),
        ("past & tgt_keep[", "past & mask["),
        ("memory_keep[", "mask["),
    )
    mixed_up = measured(*edits, text=DECODER, build="Decoder(24, 4)", call=DECODER_CALL)
    assert ignored(mixed_up) == ()
    unmasked = (*edits[:2], ("memory_keep[:, None, None, :]", "None"))
    case = measured(*unmasked, text=DECODER, build="Decoder(24, 4)", call=DECODER_CALL)
    assert [m.name for m in ignored(case)] == ["key_mask"]
