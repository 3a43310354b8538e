"""Sizes that are equal by chance are told apart by where they stand in the call."""

from __future__ import annotations

import pytest

from mha_lint.targets.rescale import NewSizes, rescale_call


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        # B is T
        ("torch.randn(5, 5, 32), torch.ones(5, 5).tril()", "torch.randn(5, 7, 48), torch.ones(7, 7).tril()"),
        ("torch.randn(5, 5, 32), torch.ones(5, 1, 5, 5)", "torch.randn(5, 7, 48), torch.ones(5, 1, 7, 7)"),
        ("torch.randn(5, 5, 32), torch.ones(5, 1)", "torch.randn(5, 7, 48), torch.ones(5, 1)"),
        # T is d_k
        ("torch.randn(5, 8, 32), torch.ones(8, 8)", "torch.randn(5, 11, 48), torch.ones(11, 11)"),
        ("torch.randn(5, 4, 8, 8)", "torch.randn(5, 6, 11, 11)"),
        ("torch.randn(5, 4, 5, 8)", "torch.randn(5, 6, 7, 12)"),
        # T is the width
        ("torch.randn(5, 32, 32)", "torch.randn(5, 33, 48)"),
        ("torch.zeros(32, 32)", "torch.zeros(33, 33)"),
    ],
)  # fmt: skip
def test_untied(call: str, expected: str) -> None:
    sizes = NewSizes(
        widths={32: 48, 8: 12}, heads={4: 6}, lengths={5: 7, 8: 11, 32: 33}, batch=5, untied=True
    )
    assert rescale_call(call, sizes) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.randn(2, 5, 32), torch.randn(2, 5, 32)", "torch.randn(2, 7, 48), torch.randn(2, 9, 48)"),
        (
            "torch.randn(2, 5, 32), memory=torch.randn(2, 5, 32), mask=torch.zeros(5, 5)",
            "torch.randn(2, 7, 48), memory=torch.randn(2, 9, 48), mask=torch.zeros(7, 9)",
        ),
        ("torch.randn(5, 2, 32), torch.randn(5, 2, 32)", "torch.randn(7, 2, 48), torch.randn(9, 2, 48)"),
        ("torch.randn(2, 5, 32), torch.ones(2, 5)", "torch.randn(2, 7, 48), torch.ones(2, 9)"),
    ],
)  # fmt: skip
def test_what_is_attended_to_has_a_length_of_its_own(call: str, expected: str) -> None:
    sizes = NewSizes(widths={32: 48}, lengths={5: 7}, batch=2, untied=True, keys={5: 9})
    assert rescale_call(call, sizes) == expected


def test_tied_sizes_stay_tied() -> None:
    sizes = NewSizes(widths={32: 48, 8: 12}, lengths={8: 11}, batch=0)
    assert rescale_call("torch.randn(8, 8, 32), torch.ones(8, 8)", sizes) == (
        "torch.randn(11, 11, 48), torch.ones(11, 12)"
    )
