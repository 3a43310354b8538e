"""What names and comments say about masks and directions."""

from __future__ import annotations

import pytest

from mha_lint.facts.masks.words import (
    comments_say,
    name_says,
    remarks,
    says_backward,
    says_bidirectional,
    says_causal,
    says_complement,
)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("valid", "keep"),
        ("text_valid", "keep"),
        ("keepMask", "keep"),
        ("non_pad_mask", "keep"),
        ("not_pad", "keep"),
        ("is_pad", "hide"),
        ("blocked", "hide"),
        ("invalid_mask", "hide"),
        ("mask", ""),
        ("key_padding_mask", ""),
        ("attention_mask", ""),
        ("valid_or_blocked", ""),
    ],
)
def test_names(name: str, meaning: str) -> None:
    assert name_says(name) == meaning


@pytest.mark.parametrize(
    ("remark", "meaning"),
    [
        ("mask: 1 = allow, 0 = block", "keep"),
        ("mask: (B, T) bool, True where the frame holds audio", "keep"),
        ("mask (B, N): 1 for real elements, 0 for padding", "keep"),
        ("mask: False entries are not attended to", "keep"),
        ("mask: 1 for tokens that are **not masked**", "keep"),
        ("mask: 0 means do not look at this key", "keep"),
        ("mask: True for non-padded tokens", "keep"),
        ("mask[i, j] != 0 means i sees j", "keep"),
        ("mask: True = pad", "hide"),
        ("mask (True: padded)", "hide"),
        ("mask: True means ignore", "hide"),
        ("mask: 1 where attention is not allowed", "hide"),
        ("mask: (B, 1, T)", ""),
        ("mask: True is for what is kept, False is for what is valid", ""),
    ],
)
def test_comments(remark: str, meaning: str) -> None:
    found = comments_say(f"# {remark}\n", "mask", only=False)
    assert (found.meaning if found else "") == meaning


def test_a_comment_about_something_else_says_nothing() -> None:
    assert comments_say("# bias: True if the layer has one\n", "mask", only=True) is None
    assert comments_say("# pads: True where padded\n", "mask", only=False) is None
    found = comments_say("# the padding mask is True where padded\n", "m", only=True)
    assert found is not None and found.meaning == "hide"


def test_a_comment_belongs_to_what_is_assigned_beside_it() -> None:
    text = "hidden = ~mask  # True: padded\n"
    assert remarks(text) == ("hidden: # True: padded",)
    assert comments_say(text, "mask", only=False) is None


def test_docstrings_are_read() -> None:
    text = 'def f(mask):\n    """Attend.\n\n    mask: True = visible\n    """\n'
    found = comments_say(text, "mask", only=False)
    assert found is not None and found.meaning == "keep"


def test_directions() -> None:
    assert says_backward(["class BackwardAttention:"])
    assert not says_backward(["x.permute(0, 2, 1)"])
    assert says_causal(["# causal attention"])
    assert says_causal(["class Decoder:"])
    assert not says_causal(["F.scaled_dot_product_attention(q, k, v, is_causal=True)"])
    assert not says_causal(["a masked language model"])
    assert says_complement(["foreground and background"])


def test_both_directions() -> None:
    assert says_bidirectional(["ViTBlock"], []) == "it is called ViTBlock"
    assert says_bidirectional(["Decoder"], []) == ""
    assert says_bidirectional(["TextEncoder"], []) == ""
    assert says_bidirectional([], ["# sees the whole sequence\n"]) == (
        "its text says “whole sequence”"
    )
