"""Padded positions that reach real ones."""

from __future__ import annotations

import pytest

from mha_lint.facts.masks.padding import measure_padding
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Known, NotApplicable
from mha_lint.model.mask_fit_facts import PaddingLeak
from tests.facts.conftest import Case, Measure
from tests.facts.masks.masked import IDS, IDS_CALL, MASKED, TRIANGLE

POOLED = (
    ("        keep = real[:, None, None, :]\n", ""),
    ("attn_mask=keep", "attn_mask=None"),
    ("        return self.out(y.transpose(1, 2).reshape(B, T, C))",
     "        y = self.out(y.transpose(1, 2).reshape(B, T, C))\n"
     "        return (y * real[..., None]).sum(1) / real.sum(1, keepdim=True)"),
)  # fmt: skip
"""The padding is left out of the mean, but not of the attention."""


def padding(case: Case) -> Fact[PaddingLeak | None]:
    return measure_padding(case.subject, case.bench, Contract())


def leak(case: Case) -> PaddingLeak:
    found = padding(case)
    assert isinstance(found, Known) and found.value is not None, found
    return found.value


def test_attention_that_is_told(measured: Measure) -> None:
    found = padding(measured(text=IDS, call=IDS_CALL))
    assert isinstance(found, Known) and found.value is None


def test_code_without_padding(measured: Measure) -> None:
    assert padding(measured()) == NotApplicable("the code shows no sign of padding")


def test_only_the_pooling_is_told(measured: Measure) -> None:
    case = measured(*POOLED, text=IDS, call=IDS_CALL)
    found = leak(case)
    assert (found.known_by, found.padded) == (
        "ids != 0 is used elsewhere", "position 3 of sample 0",
    )  # fmt: skip
    assert found.reached == "the pooled output of the same sample"
    assert found.largest > 1e-3
    assert case.marked(found.span) == "F.scaled_dot_product_attention(q, k, v, attn_mask=None)"


def test_a_call_without_padding_is_padded(measured: Measure) -> None:
    case = measured(*POOLED, text=IDS, call="torch.randint(1, 30, (2, 6))")
    assert leak(case).padded == "position 4 of sample 1"


def test_causal_attention_over_padding_at_the_end(measured: Measure) -> None:
    causal = (POOLED[0], ("attn_mask=keep", "is_causal=True"), POOLED[2])
    found = padding(measured(*causal, text=IDS, call=IDS_CALL))
    assert isinstance(found, Known) and found.value is None
    left = "torch.tensor([[0, 0, 4, 5, 6], [7, 8, 9, 10, 11]])"
    case = measured(*causal, text=IDS, call=left)
    assert leak(case).padded == "position 0 of sample 0"


def test_padding_that_is_zeroed_first_has_a_weight_as_well(measured: Measure) -> None:
    zeroed = ("x = self.embed(ids)", "x = self.embed(ids) * (ids != 0)[..., None]")
    found = leak(measured(*POOLED, zeroed, text=IDS, call=IDS_CALL))
    assert (found.zeroed, found.padded) == (True, "position 3 of sample 0")


def test_lengths_that_serve_the_pooling(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, lengths)"),
        ("        hidden = mask[:, None, None, :] == 0\n", ""),
        ("        scores = scores.masked_fill(hidden, float(\"-inf\"))\n", ""),
        ("        return self.out(context.transpose(1, 2).reshape(B, T, C))",
         "        y = self.out(context.transpose(1, 2).reshape(B, T, C))\n"
         "        return y * (torch.arange(T) < lengths[:, None])[..., None]"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([5, 3])",
    )  # fmt: skip
    found = leak(case)
    assert found.known_by == "lengths tells how long each sample is"
    assert found.reached == "real positions of the same sample"


def test_a_padding_index_and_ids_that_end_in_it(measured: Measure) -> None:
    edits = (
        ("        real = ids != 0\n        keep = real[:, None, None, :]\n", ""),
        ("attn_mask=keep", "attn_mask=None"),
    )
    case = measured(*edits, text=IDS, call=IDS_CALL)
    assert leak(case).known_by == (
        "the embedding of ids has padding_idx=0, and the call pads with it"
    )
    for call in (
        "torch.randint(1, 30, (2, 5))",
        "torch.tensor([[4, 0, 6, 2, 3], [7, 8, 9, 1, 0]])",
    ):
        assert isinstance(padding(measured(*edits, text=IDS, call=call)), NotApplicable)


def test_a_mask_that_could_be_given_and_is_not(measured: Measure) -> None:
    case = measured(
        ("forward(self, ids)", "forward(self, ids, pad_mask=None)"),
        ("        real = ids != 0\n        keep = real[:, None, None, :]\n", ""),
        ("attn_mask=keep", "attn_mask=pad_mask"),
        text=IDS,
        call=IDS_CALL,
    )
    assert isinstance(padding(case), NotApplicable)


def test_a_mask_of_what_is_to_be_predicted_is_no_padding(measured: Measure) -> None:
    case = measured(
        ("        hidden = mask[:, None, None, :] == 0\n", ""),
        ("        scores = scores.masked_fill(hidden, float(\"-inf\"))\n", ""),
        ("        return self.out(context.transpose(1, 2).reshape(B, T, C))",
         "        y = self.out(context.transpose(1, 2).reshape(B, T, C))\n"
         "        return (((y - x) ** 2).mean(-1) * mask).sum(1) / mask.sum(1)"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 0, 0]])",
    )  # fmt: skip
    assert isinstance(padding(case), NotApplicable)


def test_a_sum_without_pairs(measured: Measure) -> None:
    case = measured(
        ("        self.out =", "        self.score, self.mix = nn.Linear(d_model, 1), nn.Linear(d_model, d_model)\n"
         "        self.out ="),
        ("        return self.out(y.transpose(1, 2).reshape(B, T, C))",
         "        x = x + self.mix(y.transpose(1, 2).reshape(B, T, C))\n"
         "        w = torch.softmax(torch.tanh(self.score(x)), 1)\n"
         "        return self.out((w * x).sum(1))"),
        text=IDS,
        call=IDS_CALL,
    )  # fmt: skip
    found = leak(case)
    assert found.known_by == "ids != 0 is used elsewhere"
    assert case.marked(found.span) == "torch.softmax(torch.tanh(self.score(x)), 1)"


def test_a_triangle_alone_is_no_sign(measured: Measure) -> None:
    assert isinstance(padding(measured(text=TRIANGLE, call="torch.randn(2, 5, 24)")), NotApplicable)


FRAMES = """\
class Encoder(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.up = nn.Linear(3, d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, frames, lengths):
        B, T, _ = frames.shape
        real = torch.arange(T) < lengths[:, None]
        x = self.up(frames) * real[..., None]
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None)
        y = self.out(y.transpose(1, 2).reshape(B, T, -1))
        return (y * real[..., None]).sum(1) / lengths[:, None]
"""
FRAMES_CALL = "torch.randn(2, 6, 3), torch.tensor([6, 4])"
LISTED = """\
class Layer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, x, gone=None):
        return x + self.attn(x, x, x, key_padding_mask=gone, need_weights=False)[0]


class Stack(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.first = nn.ModuleList(Layer(d_model, num_heads) for _ in range(2))
        self.last = Layer(d_model, num_heads)

    def forward(self, x, gone):
        for n, layer in enumerate(self.first):
            x = layer(x, gone if n == 0 else None)
        return self.last(x, gone)
"""
LISTED_CALL = "torch.randn(2, 6, 24), torch.arange(6) >= torch.tensor([[6], [4]])"


def test_zeros_that_stay_among_the_keys(measured: Measure) -> None:
    case = measured(text=FRAMES, build="Encoder(24, 4)", call=FRAMES_CALL)
    found = leak(case)
    assert (found.zeroed, found.padded) == (True, "position 4 of sample 1")
    assert found.known_by == "lengths tells how long each sample is"
    assert found.largest > 1e-3
    assert case.marked(found.span) == "F.scaled_dot_product_attention(q, k, v, attn_mask=None)"


@pytest.mark.parametrize(
    "edit",
    [
        ("attn_mask=None", "attn_mask=real[:, None, None]"),
        ("attn_mask=None", "is_causal=True"),
        # Zeros in front are what some let a history begin with.
        ("< lengths", ">= T - lengths"),
    ],
)
def test_zeros_that_are_hidden(edit: tuple[str, str], measured: Measure) -> None:
    found = padding(measured(edit, text=FRAMES, build="Encoder(24, 4)", call=FRAMES_CALL))
    assert isinstance(found, NotApplicable) or found.value is None


def test_one_module_of_a_list_is_not_told(measured: Measure) -> None:
    case = measured(text=LISTED, build="Stack(24, 4)", call=LISTED_CALL)
    found = leak(case)
    assert (found.module, found.known_by) == ("first.1.attn", "gone is used elsewhere")
    assert case.marked(found.span) == "layer(x, gone if n == 0 else None)"


@pytest.mark.parametrize(
    ("edits", "call"),
    [
        ((("gone if n == 0 else None", "gone"),), LISTED_CALL),
        # What is not told is another layer, not one of the list.
        ((("gone if n == 0 else None", "gone"), ("self.last(x, gone)", "self.last(x)")), LISTED_CALL),
        # Holes are no padding.
        ((), "torch.randn(2, 4, 24), torch.tensor([[0, 1, 0, 0], [0, 0, 1, 0]]).bool()"),
    ],
)  # fmt: skip
def test_lists_that_are_right(
    edits: tuple[tuple[str, str], ...], call: str, measured: Measure
) -> None:
    found = padding(measured(*edits, text=LISTED, build="Stack(24, 4)", call=call))
    assert isinstance(found, NotApplicable) or found.value is None


LINEAR = """\
class Kernel(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, lengths):
        B, T, C = x.shape
        real = torch.arange(T) < lengths[:, None]
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = k.transpose(-2, -1) @ v
        y = (q @ state) / (q @ k.sum(2).unsqueeze(-1))
        y = self.out(y.transpose(1, 2).reshape(B, T, C))
        return y * real[..., None]
"""
LINEAR_CALL = "torch.randn(2, 5, 24), torch.tensor([5, 3])"


def test_linear_attention_that_sums_padded_keys(measured: Measure) -> None:
    case = measured(text=LINEAR, build="Kernel(24, 4)", call=LINEAR_CALL)
    found = leak(case)
    assert (found.padded, found.reached) == (
        "position 3 of sample 1",
        "real positions of the same sample",
    )
    assert found.span is not None
    assert found.span.line == case.line("state = k.transpose")


def test_linear_attention_without_padded_keys(measured: Measure) -> None:
    case = measured(
        ("F.elu(q) + 1, F.elu(k) + 1", "F.elu(q) + 1, (F.elu(k) + 1) * real[:, None, :, None]"),
        text=LINEAR,
        build="Kernel(24, 4)",
        call=LINEAR_CALL,
    )
    found = padding(case)
    assert isinstance(found, Known) and found.value is None


TWO = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.first, self.second = (nn.Linear(d_model, 3 * d_model) for _ in range(2))
        self.out = nn.Linear(d_model, d_model)

    def attend(self, qkv, keep):
        q, k, v = qkv.unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return y.transpose(1, 2).flatten(2)

    def forward(self, x, mask):
        real = mask.bool()
        keep = real[:, None, None, :]
        x = x + self.attend(self.first(x), keep)
        if real.all():
            keep = None
        return self.out(x + self.attend(self.second(x), keep))
"""
UNPADDED = "torch.randn(2, 6, 24), torch.ones(2, 6, dtype=torch.long)"
SHORT = "torch.randn(2, 6, 24), torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])"


@pytest.mark.parametrize("call", [UNPADDED, SHORT])
def test_a_mask_that_is_left_out_where_nothing_is_padded(call: str, measured: Measure) -> None:
    name = (("x, mask)", "x, attention_mask)"), ("mask.bool()", "attention_mask.bool()"))
    found = padding(measured(*name, text=TWO, call=call))
    assert isinstance(found, Known)
    assert found.value is None


@pytest.mark.parametrize("call", [UNPADDED, SHORT])
def test_a_mask_that_is_asked_for_and_left_out_all_the_same(call: str, measured: Measure) -> None:
    edits = (
        ("x, mask)", "x, attention_mask)"),
        ("mask.bool()", "attention_mask.bool()"),
        ("            keep = None", "            x = x * 1.0"),
        ("self.attend(self.second(x), keep)", "self.attend(self.second(x), None)"),
    )
    found = leak(measured(*edits, text=TWO, call=call))
    assert found.padded == "position 4 of sample 1"
    assert found.reached == "real positions of the same sample"


def test_ids_that_are_asked_for_padding(measured: Measure) -> None:
    asked = (
        "        keep = real[:, None, None, :]\n",
        "        if real.all():\n            x = x * 1.0\n",
    )
    call = "torch.randint(1, 30, (2, 6))"
    case = measured(asked, *POOLED[1:], text=IDS, call=call)
    assert leak(case).padded == "position 4 of sample 1"
    left_out = (
        ("        keep = real[:, None, None, :]\n",
         "        keep = None if real.all() else real[:, None, None, :]\n"),
        POOLED[2],
    )  # fmt: skip
    found = padding(measured(*left_out, text=IDS, call=call))
    assert isinstance(found, Known)
    assert found.value is None
