"""Whether what is hidden is what should be: polarity, place, source, direction."""

from __future__ import annotations

import dataclasses

import pytest

from mha_lint.facts.masks.fit import measure_mask_fit
from mha_lint.model.contract import Contract, ContractEntry
from mha_lint.model.facts import Known, NotApplicable
from mha_lint.model.mask_fit_facts import Inversion, MaskFit, Misplaced
from tests.facts.conftest import Case, Measure
from tests.facts.masks.masked import (
    CROSS,
    CROSS_CALL,
    IDS,
    IDS_CALL,
    MASKED,
    MASKED_CALL,
    TRIANGLE,
)

NOTHING = MaskFit()


def fit(case: Case, site: int = 0, contract: Contract | None = None) -> MaskFit:
    found = measure_mask_fit(
        case.subject, case.bench, case.bench.sites[site], contract or Contract()
    )
    assert isinstance(found, Known), found
    return found.value


def inverted(case: Case, **given: Contract) -> Inversion:
    (one,) = fit(case, **given).inverted  # type: ignore[arg-type]  # the contract alone
    return one


def misplaced(case: Case, site: int = 0) -> Misplaced:
    (one,) = fit(case, site).misplaced
    return one


# --- right -----------------------------------------------------------------------------------------


def test_without_a_mask_there_is_nothing_to_fit(measured: Measure) -> None:
    case = measured()
    found = measure_mask_fit(case.subject, case.bench, case.bench.sites[0], Contract())
    assert found == NotApplicable("nothing stands beside the scores")


@pytest.mark.parametrize(
    ("text", "call"),
    [(MASKED, MASKED_CALL), (TRIANGLE, "torch.randn(2, 5, 24)"), (IDS, IDS_CALL)],
)
def test_right_masks(measured: Measure, text: str, call: str) -> None:
    assert fit(measured(text=text, call=call)) == NOTHING


def test_right_masks_of_a_decoder(measured: Measure) -> None:
    case = measured(text=CROSS, build="Decoder(24, 4)", call=CROSS_CALL)
    assert (fit(case, 0), fit(case, 1)) == (NOTHING, NOTHING)


# --- polarity --------------------------------------------------------------------------------------


def test_a_triangle_on_the_wrong_side(measured: Measure) -> None:
    case = measured((".tril()", ".triu()"), text=TRIANGLE, call="torch.randn(2, 5, 24)")
    one = inverted(case)
    assert (one.how, one.certain, one.built) == ("triangle", True, True)
    assert case.marked(one.span) == "torch.ones(T, T).triu()"
    assert one.signs == (
        "every one of 5 positions sees itself and later positions only, none sees an earlier one",
    )
    assert (
        one.witness == "changing the value at position 4 moves the context of positions before it"
    )


def test_the_complement_of_a_triangle_is_the_readers_fault(measured: Measure) -> None:
    case = measured(("seen == 0", "seen == 1"), text=TRIANGLE, call="torch.randn(2, 5, 24)")
    one = inverted(case)
    assert (one.how, one.built) == ("triangle", False)
    assert case.marked(one.span) == "scores.masked_fill(seen == 1, -1e9)"
    assert case.marked(one.other) == "torch.ones(T, T).tril()"


def test_what_says_backward_is_meant(measured: Measure) -> None:
    comment = ("        seen =", "        # right to left\n        seen =")
    case = measured((".tril()", ".triu()"), comment, text=TRIANGLE, call="torch.randn(2, 5, 24)")
    assert fit(case).inverted == ()


def test_a_flipped_sequence_is_meant(measured: Measure) -> None:
    flip = ("        B, T, C = x.shape", "        x = x.flip(1)\n        B, T, C = x.shape")
    case = measured(flip, text=TRIANGLE, call="torch.randn(2, 5, 24)")
    assert fit(case) == NOTHING


def test_the_call_would_hide_a_whole_sample(measured: Measure) -> None:
    case = measured(("== 0", "== 1"), text=MASKED, call=MASKED_CALL)
    one = inverted(case)
    assert (one.how, one.mask, one.reads, one.certain) == ("polarity", "mask", "hide", True)
    assert one.signs == ("what the call gives would hide every key of sample 0",)
    assert case.marked(one.span) == 'scores.masked_fill(hidden, float("-inf"))'


def test_a_call_that_nobody_wrote_says_nothing(measured: Measure) -> None:
    case = measured(("== 0", "== 1"), text=MASKED, call=MASKED_CALL)
    assert fit(case).inverted != ()
    made_up = dataclasses.replace(case.subject, made_up=True)
    assert made_up.how == "stated"
    assert not made_up.real
    assert fit(dataclasses.replace(case, subject=made_up)).inverted == ()


def test_a_sample_without_any_key_is_no_inversion(measured: Measure) -> None:
    call = "torch.randn(2, 5, 24), torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])"
    assert fit(measured(text=MASKED, call=call)).inverted == ()


def test_padding_ids_that_are_kept(measured: Measure) -> None:
    case = measured(("ids != 0", "ids == 0"), text=IDS, call=IDS_CALL)
    one = inverted(case)
    assert (one.mask, one.reads, one.certain) == ("ids == 0", "keep", True)
    assert one.signs == (
        "ids == 0 is true at padding",
        "what the call gives would hide every key of sample 1",
    )
    assert case.marked(one.span) == "F.scaled_dot_product_attention(q, k, v, attn_mask=keep)"


def test_padding_that_meets_a_triangle_in_the_other_convention(measured: Measure) -> None:
    case = measured(
        ("ids != 0", "ids == 0"),
        ("keep = real[:, None, None, :]",
         "keep = real[:, None, None, :] & torch.ones(T, T).tril().bool()"),
        text=IDS,
        call=IDS_CALL,
    )  # fmt: skip
    one = inverted(case)
    assert one.built
    assert case.marked(one.span) == "real[:, None, None, :] & torch.ones(T, T).tril().bool()"


def test_lengths_that_are_hidden(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, lengths)"),
        ("mask[:, None, None, :] == 0", "(torch.arange(T) < lengths[:, None])[:, None, None]"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([5, 3])",
    )
    assert inverted(case).signs == (
        "the comparison with lengths is true within each sample's length",
        "what the call gives would hide every key of sample 0",
    )


def test_a_count_of_left_padding_is_no_length(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, left_pads)"),
        ("mask[:, None, None, :] == 0", "(torch.arange(T) < left_pads[:, None])[:, None, None]"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([0, 2])",
    )
    assert fit(case).inverted == ()


def test_a_name_alone_is_uncertain(measured: Measure) -> None:
    call = "torch.randn(2, 5, 24), torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]])"
    name = ("forward(self, x, mask)", "forward(self, x, valid)"), ("mask[:", "valid[:")
    case = measured(*name, ("== 0", "== 1"), text=MASKED, call=call)
    one = inverted(case)
    assert (one.certain, one.signs) == (False, ("the argument is called valid",))


def test_stated_polarity_decides(measured: Measure) -> None:
    case = measured(text=MASKED, call=MASKED_CALL)
    hide = Contract((ContractEntry("mask", "hide", "stated"),))
    assert inverted(case, contract=hide).signs == ("--expect mask=hide",)
    turned = measured(("== 0", "== 1"), text=MASKED, call=MASKED_CALL)
    assert fit(turned, contract=hide).inverted == ()


def test_everything_is_hidden_and_no_score_is_left(measured: Measure) -> None:
    case = measured(("ids != 0", "ids == 0"), text=IDS, call="torch.randint(1, 30, (2, 5))")
    one = inverted(case)
    assert one.witness == "every key of the call is hidden, and none would be the other way round"


# --- place -----------------------------------------------------------------------------------------


def test_on_the_query_axis(measured: Measure) -> None:
    case = measured(("[:, None, None, :]", "[:, None, :, None]"), text=IDS, call=IDS_CALL)
    one = misplaced(case)
    assert (one.kind, one.mask, one.certain) == ("queries", "the mask made from ids", True)
    assert case.marked(one.span) == "real[:, None, :, None]"
    assert one.witness == "query 0 sees key 3, which the mask made from ids marks as padding"


def test_a_mask_of_queries_that_decides_on_some_of_their_keys(measured: Measure) -> None:
    keep = "(ids[:, :, None] == ids[:, None]) & real[:, :, None] | torch.ones(T, T).tril().bool()"
    case = measured(
        ("real[:, None, None, :]", f"({keep})[:, None]"),
        text=IDS,
        call="torch.tensor([[4, 5, 4, 4, 0], [7, 7, 9, 7, 11]])",
    )
    assert fit(case) == NOTHING


def test_on_both_axes_is_right(measured: Measure) -> None:
    both = "real[:, None, :, None] & real[:, None, None, :]"
    case = measured(("real[:, None, None, :]", both), text=IDS, call=IDS_CALL)
    assert fit(case) == NOTHING


def test_behind_a_triangle_padded_queries_do_no_harm(measured: Measure) -> None:
    keep = "real[:, None, :, None] & torch.ones(T, T).tril().bool()"
    case = measured(("real[:, None, None, :]", keep), text=IDS, call=IDS_CALL)
    assert fit(case) == NOTHING


def test_in_another_sample(measured: Measure) -> None:
    case = measured(
        ("mask[:, None, None, :] == 0", "mask.repeat(4, 1).view(2, 4, 1, 5) == 0"),
        text=MASKED,
        call=MASKED_CALL,
    )
    one = misplaced(case)
    assert (one.kind, one.says) == ("samples", "the mask of sample 0 acts on sample 1")
    assert case.marked(one.span) == "mask.repeat(4, 1)"


def test_samples_that_meet_the_heads(measured: Measure) -> None:
    call = "torch.randn(4, 5, 24), (torch.arange(5) < torch.tensor([[5], [4], [3], [2]])).long()"
    case = measured(("mask[:, None, None, :]", "mask[:, None, :]"), text=MASKED, call=call)
    one = misplaced(case)
    assert one.kind == "heads"
    assert case.marked(one.span) == "mask[:, None, :]"


def test_padded_at_the_wrong_end(measured: Measure) -> None:
    extra = (
        ("        scores = q @ k", "        k = torch.cat([self.extra.expand(B, -1, -1, -1), k], 2)\n"
         "        v = torch.cat([self.extra.expand(B, -1, -1, -1), v], 2)\n        scores = q @ k"),
        ("        self.out =", "        self.extra = nn.Parameter(torch.randn(1, 4, 2, 6))\n        self.out ="),
    )  # fmt: skip
    right = measured(
        *extra, ("hidden = mask", "hidden = F.pad(mask, (2, 0), value=1)"), text=MASKED,
        call=MASKED_CALL,
    )  # fmt: skip
    assert fit(right) == NOTHING
    case = measured(
        *extra, ("hidden = mask", "hidden = F.pad(mask, (0, 2), value=1)"), text=MASKED,
        call=MASKED_CALL,
    )  # fmt: skip
    one = misplaced(case)
    assert one.kind == "positions"
    assert one.says == (
        "the element about position 0 acts on a key that holds no position (7 keys, 5 positions)"
    )
    assert case.marked(one.span) == "F.pad(mask, (0, 2), value=1)"


def test_the_targets_mask_over_the_memory(measured: Measure) -> None:
    case = measured(
        ("memory_keep[:, None, None, :])", "past & tgt_keep[:, None, None, :])"),
        text=CROSS,
        build="Decoder(24, 4)",
        call=CROSS_CALL,
    )
    assert fit(case, 0) == NOTHING
    one = misplaced(case, 1)
    assert (one.kind, one.mask, one.meant, one.certain) == (
        "source", "tgt_keep", "memory_keep", True,
    )  # fmt: skip
    assert case.marked(one.span).startswith("self.outer(tgt, memory,")
    assert fit(case, 1).causal_cross is None


def test_one_mask_passed_twice_is_told_apart(measured: Measure) -> None:
    case = measured(
        ("memory_keep[:, None, None, :])", "past & tgt_keep[:, None, None, :])"),
        text=CROSS,
        build="Decoder(24, 4)",
        call="*(lambda m: (torch.randn(2, 5, 24), torch.randn(2, 5, 24), m, m))"
        "(torch.ones(2, 5).bool())",
    )
    assert misplaced(case, 1).kind == "source"


# --- joined, windows -------------------------------------------------------------------------------

JOINED = (
    ("        seen = torch.ones(T, T).tril()\n", "        i = torch.arange(T)\n"
     "        ahead = i[None] - i[:, None]\n        hidden = (ahead > 0) | (ahead <= -2)\n"),
    ("seen == 0", "hidden"),
)  # fmt: skip


def test_a_window_behind_the_query_is_right(measured: Measure) -> None:
    assert fit(measured(*JOINED, text=TRIANGLE, call="torch.randn(2, 6, 24)")) == NOTHING


def test_the_future_and_the_past_together_are_nothing(measured: Measure) -> None:
    both = JOINED[0][1].replace("|", "&")
    case = measured((JOINED[0][0], both), JOINED[1], text=TRIANGLE, call="torch.randn(2, 6, 24)")
    one = misplaced(case)
    assert one.kind == "halves"
    assert case.marked(one.span) == "(ahead > 0) & (ahead <= -2)"


def test_back_or_ahead_is_both_directions(measured: Measure) -> None:
    both = "        seen = torch.ones(T, T).tril().bool() | torch.ones(T, T).triu().bool()\n"
    case = measured((JOINED[0][0], both), text=TRIANGLE, call="torch.randn(2, 6, 24)")
    found = measure_mask_fit(case.subject, case.bench, case.bench.sites[0], Contract())
    assert found == NotApplicable("nothing is hidden")


def test_either_a_triangle_or_padding(measured: Measure) -> None:
    keep = "real[:, None, None, :] | torch.ones(T, T).tril().bool()"
    case = measured(("real[:, None, None, :]", keep), text=IDS, call=IDS_CALL)
    one = misplaced(case)
    assert one.kind == "either"
    assert case.marked(one.span) == keep


def test_a_window_on_the_other_side(measured: Measure) -> None:
    window = JOINED[0][1].replace("(ahead > 0) | (ahead <= -2)", "(ahead < 0) | (ahead >= 2)")
    case = measured((JOINED[0][0], window), JOINED[1], text=TRIANGLE, call="torch.randn(2, 6, 24)")
    assert misplaced(case).kind == "window"


# --- direction -------------------------------------------------------------------------------------


def test_a_triangle_over_the_memory(measured: Measure) -> None:
    case = measured(
        ("memory_keep[:, None, None, :])", "past)"),
        text=CROSS,
        build="Decoder(24, 4)",
        call=CROSS_CALL,
    )
    found = fit(case, 1).causal_cross
    assert found is not None
    assert (found.certain, found.t_q, found.t_k, found.hidden) == (False, 5, 5, 10)
    assert found.why == (
        "the keys come from memory, by its name the source, which is known as a whole"
    )
    assert case.marked(found.span) == "self.outer(tgt, memory, past)"


def test_two_lengths_cannot_share_a_triangle(measured: Measure) -> None:
    case = measured(
        ("memory_keep[:, None, None, :])", "torch.ones(t, memory.shape[1]).tril().bool())"),
        text=CROSS,
        build="Decoder(24, 4)",
        call=CROSS_CALL.replace("torch.randn(2, 5, 24), torch.randn(2, 5, 24)",
                                "torch.randn(2, 5, 24), torch.randn(2, 7, 24)"),
    )  # fmt: skip
    found = fit(case, 1).causal_cross
    assert found is not None and found.certain
    assert found.why == (
        "5 queries and 7 keys are two sequences of different length, so that query i is not at key"
        " i"
    )


def test_a_triangle_where_both_directions_are_stated(measured: Measure) -> None:
    case = measured(text=TRIANGLE, call="torch.randn(2, 5, 24)")
    both = Contract((ContractEntry("bidirectional", True, "stated"),))
    found = fit(case, contract=both).unwanted
    assert found is not None and (found.why, found.certain) == ("--expect bidirectional", True)
    assert case.marked(found.span) == "scores.masked_fill(seen == 0, -1e9)"


def test_an_output_that_reads_the_first_position_alone(measured: Measure) -> None:
    case = measured(
        ("reshape(B, T, C))", "reshape(B, T, C)[:, 0])"),
        text=TRIANGLE,
        call="torch.randn(2, 5, 24)",
    )
    found = fit(case).unwanted
    assert found is not None and found.certain
    assert found.why == "the output reads position 0 alone, which sees nothing but itself"


def test_a_name_that_means_both_directions(measured: Measure) -> None:
    case = measured(
        ("class MHA", "class ViTBlock"),
        text=TRIANGLE,
        build="ViTBlock(24, 4)",
        call="torch.randn(2, 5, 24)",
    )
    found = fit(case).unwanted
    assert found is not None and (found.why, found.certain) == ("it is called ViTBlock", False)


# --- whose line it is ------------------------------------------------------------------------------

HANDED = """\
class Attend(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.h)
        bias = (mask == 0) * -1e9
        context = (scores + bias).softmax(dim=-1) @ v
        return self.out(context.transpose(1, 2).reshape(B, T, C))


class Model(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.embed = nn.Embedding(30, d_model, padding_idx=0)
        self.attend = Attend(d_model, num_heads)

    def forward(self, ids):
        real = ids != 0
        return self.attend(self.embed(ids), real[:, None, None, :])
"""


def test_a_mask_that_is_handed_over_in_the_other_convention(measured: Measure) -> None:
    right = measured(text=HANDED, build="Model(24, 4)", call=IDS_CALL)
    assert fit(right) == NOTHING
    case = measured(("ids != 0", "ids == 0"), text=HANDED, build="Model(24, 4)", call=IDS_CALL)
    one = inverted(case)
    assert one.built
    assert case.marked(one.span) == "ids == 0"
    assert case.marked(one.other) == "(mask == 0) * -1e9"


def test_a_call_that_hands_over_what_the_attention_says_it_does_not_take(measured: Measure) -> None:
    case = measured(
        ("        B, T, C = x.shape", "        # mask: 1 = may be seen\n        B, T, C = x.shape"),
        ("def forward(self, ids):", "def forward(self, ids, padding):"),
        ("        real = ids != 0\n", ""),
        ("real[:, None, None, :]", "padding[:, None, None, :]"),
        text=HANDED,
        build="Model(24, 4)",
        call=f"{IDS_CALL}, torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])",
    )
    one = inverted(case)
    assert case.marked(one.span) == "self.attend(self.embed(ids), padding[:, None, None, :])"


def test_the_fill_is_where_a_mask_is_read(measured: Measure) -> None:
    case = measured(
        ("(mask == 0) * -1e9", "(mask == 1) * -1e9"),
        ("def forward(self, ids):", "def forward(self, ids, mask):"),
        ("        real = ids != 0\n", ""),
        ("real[:, None, None, :]", "mask[:, None, None, :]"),
        text=HANDED,
        build="Model(24, 4)",
        call=f"{IDS_CALL}, torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])",
    )
    assert case.marked(inverted(case).span) == "(mask == 1) * -1e9"


def test_a_padded_key_that_stays_visible(measured: Measure) -> None:
    either = "real[:, None, None, :] | real[:, None, :, None]"
    case = measured(("real[:, None, None, :]", either), text=IDS, call=IDS_CALL)
    one = misplaced(case)
    assert (one.kind, one.says) == (
        "either", "query 0 of sample 0 is real and sees key 3, which is padded",
    )  # fmt: skip
    assert case.marked(one.span) == either


def test_an_encoder_beside_a_decoder(measured: Measure) -> None:
    text = (
        TRIANGLE
        + """

class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = MHA(d_model, num_heads)

    def forward(self, x):
        return x + self.attention(x)


class Both(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.encoder, self.decoder = EncoderLayer(d_model, num_heads), MHA(d_model, num_heads)

    def forward(self, x, y):
        return self.decoder(y) + self.encoder(x).mean(1, keepdim=True)
"""
    )
    call = "torch.randn(2, 5, 24), torch.randn(2, 6, 24)"
    case = measured(text=text, build="Both(24, 4)", call=call)
    found = [fit(case, i).unwanted for i in (0, 1)]
    assert [f.why if f else None for f in found].count(None) == 1
    (one,) = [f for f in found if f is not None]
    assert one.why == "it stands in encoder.attention, beside a decoder"
    assert case.marked(one.span) == "self.attention(x)"


# --- numbers of real positions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "certain"),
    [
        ("        return y[torch.arange(B), n - 1]", True),
        ("        # n: (B,) number of real events\n        return y", False),
    ],
)
def test_a_count_that_is_read_as_padding(end: str, certain: bool, measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, n)"),
        ("mask[:, None, None, :] == 0", "(torch.arange(T) < n[:, None])[:, None, None]"),
        ("        return self.out(context", "        y = self.out(context"),
        ("reshape(B, T, C))", f"reshape(B, T, C))\n{end}"),
        text=MASKED,
        call="torch.randn(3, 7, 24), torch.tensor([5, 4, 6])",
    )
    one = inverted(case)
    assert (one.how, one.reads, one.certain) == ("polarity", "hide", certain)
    assert one.signs[0].startswith("the comparison with n is true within each sample's length: ")


def test_a_count_of_each_position_is_no_length(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, n)"),
        ("mask[:, None, None, :] == 0", "(torch.arange(T) >= n[:, :, None])[:, None]"),
        ("        B, T, C", "        # n: (B, T) number of real positions to see\n        B, T, C"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([[1, 2, 2, 4, 5], [5, 5, 5, 5, 5]])",
    )
    assert fit(case).inverted == ()
