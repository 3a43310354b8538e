"""A second sample beside the only one."""

from __future__ import annotations

import torch

from mha_lint.targets.live import live_subject, take
from mha_lint.targets.live.widen import widened


class Cache:
    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


def attend(
    x: torch.Tensor, mask: torch.Tensor | None = None, cache: Cache | None = None
) -> torch.Tensor:
    k = x if cache is None else torch.cat([cache.keys, x], 1)
    s = x @ k.mT
    return (s if mask is None else s + mask).softmax(-1) @ k


def test_samples_are_added_and_masks_repeated() -> None:
    x, mask = torch.randn(1, 5, 8), torch.zeros(1, 5, 5)
    mask[0, 0, 1] = -1e9
    one = take(attend, (x, mask), {})
    two = widened(one, live_subject(one))
    assert two is not None
    assert two.args[0].shape == (2, 5, 8)
    assert torch.equal(two.args[0][:1], x)
    assert torch.equal(two.args[1], mask.repeat(2, 1, 1))


def test_a_cache_is_widened_too() -> None:
    x, keys = torch.randn(1, 2, 8), torch.randn(1, 3, 8)
    one = take(attend, (x, None, Cache(keys)), {})
    two = widened(one, live_subject(one))
    assert two is not None
    assert two.args[2].keys.shape == (2, 3, 8)
    assert one.args[2].keys.shape == (1, 3, 8)


def test_several_samples_stay_as_they_are() -> None:
    one = take(attend, (torch.randn(2, 5, 8),), {})
    assert widened(one, live_subject(one)) is None


def test_a_first_axis_that_is_no_batch_is_left_alone() -> None:
    def over_time(x: torch.Tensor) -> torch.Tensor:  # (T, B, d)
        y = x.transpose(0, 1)
        return ((y @ y.mT).softmax(-1) @ y).transpose(0, 1)

    one = take(over_time, (torch.randn(1, 5, 8),), {})
    assert widened(one, live_subject(one)) is None
