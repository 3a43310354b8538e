"""`mha_lint.testing.assert_attention`."""

from __future__ import annotations

import pytest
import torch

from mha_lint.testing import assert_attention


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, axis: int = -1) -> torch.Tensor:
    scores: torch.Tensor = q @ k.mT / q.shape[-1] ** 0.5
    return scores.softmax(axis) @ v


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    return q, k, v


def test_right_attention_gives_its_report() -> None:
    report = assert_attention(attend, *tensors(), select=["MHA2"])
    assert report.checked
    assert report.sites[0].softmax_axis == "keys"


def test_wrong_attention_raises_with_the_report() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_attention(attend, *tensors(), axis=-2)
    text = str(caught.value)
    assert text.splitlines()[0].endswith("test_testing.py::attend is not what it should be")
    assert "error[MHA204] wrong-softmax-axis" in text


def test_what_counts_can_be_chosen() -> None:
    assert_attention(attend, *tensors(), axis=-2, ignore=["MHA204", "MHA901"])
    x = torch.randn(2, 6, 8)
    with pytest.raises(AssertionError, match="MHA309"):
        assert_attention(attend, x, x, x, expect=["causal"])


def test_a_call_without_attention_raises() -> None:
    with pytest.raises(AssertionError, match="no attention was found"):
        assert_attention(torch.nn.Linear(3, 3), torch.randn(2, 3))


def test_the_level_that_fails_can_be_chosen() -> None:
    wrong = assert_attention(attend, *tensors(), axis=-2, select=["MHA1"], fail_on="error")
    assert wrong.above("error") == ()
