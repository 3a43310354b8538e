"""Masks that a call may leave out are given, the right way round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mha_lint.targets.subject import Subject

Open = Callable[..., object]

SOURCE = """
class Branches(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
    def forward(self, x, {arguments}):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            {lines}
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
"""
KEEP = "s = s.masked_fill(~mask[:, None, None, :], -1e9)"
HIDE = "s = s.masked_fill(mask[:, None, None, :], -1e9)"
INDIRECT = "hidden = ~mask[:, None, None, :]; s = s.masked_fill(hidden, -1e9)"


def opened_with(opened: Open, arguments: str, lines: str, **stated: str) -> Subject:
    source = SOURCE.replace("{arguments}", arguments).replace("{lines}", lines)
    subject = opened(source, "Branches", **stated)
    assert isinstance(subject, Subject)
    return subject


@pytest.mark.parametrize("arguments", ["mask=None", "verbose=False, mask=None", "mask"])
@pytest.mark.parametrize(("lines", "kept"), [(KEEP, True), (HIDE, False), (INDIRECT, True)])
def test_a_mask_is_given_and_hides_nothing(
    opened: Open, arguments: str, lines: str, kept: bool
) -> None:
    subject = opened_with(opened, arguments, lines)
    given = dict(
        zip(subject.argument_names, (*subject.args, *subject.kwargs.values()), strict=True)
    )
    assert torch.equal(given["mask"], torch.full((3, 7), kept))
    written = f"torch.{'ones' if kept else 'zeros'}(3, 7, dtype=torch.bool)"
    assert subject.call.startswith("torch.randn(3, 7, 24), ")
    assert subject.call.endswith(written)


def test_none_that_the_code_does_not_take(opened: Open) -> None:
    subject = opened_with(opened, "mask=None", "raise ValueError('not yet')")
    assert subject.call == "torch.randn(3, 7, 24)"


def test_a_stated_call_stays(opened: Open) -> None:
    subject = opened_with(
        opened, "mask=None", KEEP, build="Branches(40, 5)", call="torch.randn(2, 6, 40)"
    )
    assert (subject.call, subject.kwargs) == ("torch.randn(2, 6, 40)", {})


def test_sizes_are_those_of_a_stated_build(opened: Open) -> None:
    subject = opened_with(opened, "mask=None", HIDE, build="Branches(40, 5)")
    assert subject.call == "torch.randn(3, 7, 40), mask=torch.zeros(3, 7, dtype=torch.bool)"
    assert [p.grad for p in subject.module.parameters()] == [None, None]  # type: ignore[union-attr]
    assert all(p.requires_grad for p in subject.module.parameters())  # type: ignore[union-attr]


FLAGGED = """
class Flagged(nn.Module):
    def __init__(self, dim, heads, rows=False):
        super().__init__()
        self.rows, self.heads = rows, heads
        self.qkv = nn.Linear(dim, 3 * dim)
    def attend(self, q, k, v, mask, row_mask, head_mask):
        s = q @ k.mT * q.shape[-1] ** -0.5
        hidden = row_mask if self.rows else mask
        w = (s if hidden is None else s.masked_fill(~hidden[:, None, None, :], -1e9)).softmax(-1)
        return (w if head_mask is None else w * head_mask) @ v
    def forward(self, x, mask=None, row_mask=None, head_mask=None, forgotten_mask=None):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.attend(q, k, v, mask, row_mask, head_mask)
        return y.transpose(1, 2).reshape(b, t, c)
"""


def test_no_mask_of_another_configuration_and_none_of_heads(opened: Open) -> None:
    subject = opened(FLAGGED, "Flagged")
    assert isinstance(subject, Subject)
    assert sorted(subject.kwargs) == ["forgotten_mask", "mask"]


def test_a_mask_that_the_configuration_uses(opened: Open) -> None:
    subject = opened(FLAGGED, "Flagged", build="Flagged(24, 4, rows=True)")
    assert isinstance(subject, Subject)
    assert sorted(subject.kwargs) == ["forgotten_mask", "row_mask"]
