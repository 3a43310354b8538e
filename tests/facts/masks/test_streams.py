"""Which sequence a mask speaks of."""

from __future__ import annotations

from mha_lint.facts.masks.held import entries_of, rows_of
from mha_lint.facts.masks.roots import roots_of
from mha_lint.facts.masks.streams import (
    is_nameless,
    is_source_name,
    named_stream,
    of_absent_states,
    streams_of,
    words_in,
)
from tests.facts.conftest import Measure
from tests.facts.masks.masked import CROSS, CROSS_CALL


def test_words_that_tell_one_sequence_from_another() -> None:
    assert words_in("text_mask") == {"text"}
    assert words_in("srcKeyPaddingMask") == {"src", "<source>"}
    assert words_in("tgt_valid") == {"tgt", "<target>"}
    assert words_in("attention_mask") == frozenset()
    assert is_source_name("encoder_hidden_states") and not is_source_name("x")


def test_named_sequences(measured: Measure) -> None:
    case = measured(text=CROSS, build="Decoder(24, 4)", call=CROSS_CALL)
    sequences = [e for e in entries_of(case.bench) if e.axis is not None]
    assert {e.argument for e in sequences} == {"tgt", "memory"}
    found = {
        name: named_stream(name, sequences) for name in ("src_mask", "target_mask", "mask", "x")
    }
    assert {n: e.argument if e else None for n, e in found.items()} == {
        "src_mask": "memory", "target_mask": "tgt", "mask": None, "x": None,
    }  # fmt: skip


def test_a_mask_that_speaks_of_the_keys(measured: Measure) -> None:
    case = measured(text=CROSS, build="Decoder(24, 4)", call=CROSS_CALL)
    outer = case.bench.sites[1]
    (root,) = roots_of(case.bench, outer)
    own = rows_of(case.bench, outer).own(queries=False)
    found = streams_of(case.bench, root, outer)
    assert (root.argument, found.meant, found.better) == ("memory_keep", own, None)


def test_a_mask_that_speaks_of_the_queries(measured: Measure) -> None:
    case = measured(
        ("memory_keep[:, None, None, :])", "tgt_keep[:, None, None, :])"),
        text=CROSS,
        build="Decoder(24, 4)",
        call=CROSS_CALL,
    )
    outer = case.bench.sites[1]
    (root,) = roots_of(case.bench, outer)
    found = streams_of(case.bench, root, outer)
    assert found.meant is not None and found.meant.argument == "tgt"
    assert (found.better, found.certain) == ("memory_keep", True)
    assert found.why == "elsewhere tgt_keep hides keys that come from tgt"


def test_a_mask_of_no_sequence_by_name() -> None:
    assert is_nameless("key_padding_mask") and is_nameless("attention_mask")
    assert not is_nameless("src_mask") and not is_nameless("x_mask") and not is_nameless("text_pad")


def test_a_mask_of_states_that_are_left_out(measured: Measure) -> None:
    taken = "forward(self, x, picture_hidden_states=None, picture_mask=None, mask=None)"
    call = "torch.randn(2, 5, 24), None, torch.ones(2, 5)"
    left = measured(("forward(self, x)", taken), call=call)
    assert of_absent_states(left.subject, "picture_mask")
    assert not of_absent_states(left.subject, "mask")
    given = call.replace("None", "torch.randn(2, 5, 24)")
    both = measured(("forward(self, x)", taken), call=given)
    assert not of_absent_states(both.subject, "picture_mask")
