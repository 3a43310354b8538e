"""Where elements come from, compared with the index tensors that the same layout makes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from mha_lint.capture import Replay
from mha_lint.sites.trace import (
    depends_on_values,
    dominant_index,
    influence_codes,
    mostly_varies_along,
    trace,
    varies_along,
)

Replayed = Callable[..., tuple[Replay, fx.Node, fx.Node]]

SHAPE = (2, 5, 12)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.view(2, 5, 3, 4).transpose(1, 2),
        lambda x: x.view(2, 3, 5, 4),
        lambda x: x.transpose(0, 1).reshape(5, 24),
        lambda x: x.flip(1)[:, 1:],
        lambda x: x.roll(2, 1),
        lambda x: torch.cat((x, x), 1),
        lambda x: x.repeat_interleave(2, dim=1),
        lambda x: x[:, None].expand(2, 3, 5, 12),
        lambda x: torch.stack(x.unbind(1)),
        lambda x: x.unfold(2, 4, 4),
    ],
)
def test_layouts(layout: Callable[[Tensor], Tensor], replayed: Replayed) -> None:
    found = trace(*replayed(layout, torch.randn(SHAPE)))
    places = torch.arange(120).view(SHAPE)
    assert found.all_clean
    assert found.shape == SHAPE
    assert torch.equal(found.flat(), layout(places))
    assert bool(found.responds.all())
    assert found.gain is not None
    torch.testing.assert_close(found.gain, torch.ones_like(found.gain), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("change", "gain"),
    [
        (lambda x: x * 3, 3.0),
        (lambda x: -x / 4, -0.25),
        (lambda x: x * 0.5 + 11, 0.5),
        (lambda x: x - 0.3 * x, 0.7),
    ],
)
def test_gains(change: Callable[[Tensor], Tensor], gain: float, replayed: Replayed) -> None:
    found = trace(*replayed(lambda x: change(x.transpose(1, 2)), torch.randn(SHAPE)))
    assert found.gain is not None
    torch.testing.assert_close(found.gain, torch.full((2, 12, 5), gain).double(), atol=1e-6, rtol=0)


def test_elementwise_curves_keep_the_index(replayed: Replayed) -> None:
    found = trace(*replayed(lambda x: (x.tanh() * 2).sigmoid().mT, torch.randn(SHAPE)))
    assert torch.equal(found.flat(), torch.arange(120).view(SHAPE).mT)


def test_a_relu_is_seen_on_both_sides(replayed: Replayed) -> None:
    found = trace(*replayed(lambda x: x.relu().transpose(0, 1), torch.randn(SHAPE)))
    assert bool(found.responds.all())
    assert torch.equal(found.flat(), torch.arange(120).view(SHAPE).transpose(0, 1))


def test_masked_elements_are_unknown(replayed: Replayed) -> None:
    hidden = torch.ones(5, 5).triu(1).bool()
    found = trace(*replayed(lambda x: x.masked_fill(hidden, float("-inf")), torch.randn(3, 5, 5)))
    assert torch.equal(found.responds[0], ~hidden)
    assert found.all_clean
    assert torch.equal(found.index[2][0][~hidden], torch.arange(5).expand(5, 5)[~hidden])
    assert bool((found.flat()[0][hidden] == -1).all())


def test_a_rotation_mixes_channels_only(replayed: Replayed) -> None:
    turn = torch.linalg.qr(torch.randn(12, 12))[0]
    found = trace(*replayed(lambda x: x @ turn.to(x.dtype), torch.randn(SHAPE)))
    assert found.clean == (True, True, False)
    assert not found.all_clean
    assert found.gain is None
    assert torch.equal(found.index[1], torch.arange(5)[None, :, None].expand(SHAPE))


def test_a_softmax_mixes_its_axis_only(replayed: Replayed) -> None:
    found = trace(*replayed(lambda x: x.softmax(1), torch.randn(SHAPE)))
    assert (found.clean[0], found.clean[1], found.clean[2]) == (True, False, True)


def test_of_a_node_from_itself(replayed: Replayed) -> None:
    replay, x, _ = replayed(lambda x: x + 1, torch.randn(2, 3))
    found = trace(replay, x, x)
    assert torch.equal(found.flat(), torch.arange(6).view(2, 3))
    assert found.clean == (True, True)


def test_of_an_unrelated_node(replayed: Replayed) -> None:
    replay, x, out = replayed(lambda x: torch.zeros_like(x) + 1, torch.randn(2, 3))
    found = trace(replay, x, out)
    assert not bool(found.responds.any())
    assert not found.all_clean


def test_traces_are_measured_once(replayed: Replayed) -> None:
    replay, x, out = replayed(lambda x: x.mT, torch.randn(2, 3))
    assert trace(replay, x, out) is trace(replay, x, out)


def test_codes_tell_sets_of_slices_apart(replayed: Replayed) -> None:
    groups = torch.kron(torch.eye(3), torch.randn(4, 4))
    replay, x, out = replayed(lambda x: x @ groups.to(x.dtype), torch.randn(SHAPE))
    codes = influence_codes(replay, x, out, 2)
    assert codes.shape == SHAPE
    per_channel = codes[0, 0].tolist()
    assert len(set(per_channel)) == 3
    assert per_channel == [per_channel[0]] * 4 + [per_channel[4]] * 4 + [per_channel[8]] * 4
    everything = influence_codes(replay, x, out, 1)
    assert [len(set(row.tolist())) for row in everything[0]] == [1] * 5
    assert len(set(everything[0, :, 0].tolist())) == 5


def test_the_slice_that_moves_an_element_most(replayed: Replayed) -> None:
    near = torch.eye(5) + 0.2 * torch.eye(5).roll(1, 0)
    replay, x, out = replayed(lambda x: near.to(x.dtype) @ x, torch.randn(SHAPE))
    index = dominant_index(replay, x, out, 1)
    share = (index == torch.arange(5)[None, :, None]).double().mean()
    assert share > 0.9
    replay, x, out = replayed(lambda x: x * 0, torch.randn(SHAPE))
    assert bool((dominant_index(replay, x, out, 1) == -1).all())


@pytest.mark.parametrize(
    ("values", "along_rows", "along_columns"),
    [
        ([[0, 1], [0, 1]], False, True),
        ([[0, 0], [1, 1]], True, False),
        ([[2, 2], [2, 2]], False, False),
        ([[0, -1], [0, -1]], False, False),
        ([[-1, -1], [-1, -1]], False, False),
        ([[0, 1], [1, 0]], True, True),
    ],
)
def test_what_varies(values: list[list[int]], along_rows: bool, along_columns: bool) -> None:
    tensor = torch.tensor(values)
    assert varies_along(tensor, 0) is along_rows
    assert varies_along(tensor, 1) is along_columns


def test_what_mostly_varies() -> None:
    assert mostly_varies_along(torch.tensor([0, 1, 1, 2, 3]), 0)
    assert not mostly_varies_along(torch.tensor([0, 0, 0, 1, 0, 0]), 0)
    assert not mostly_varies_along(torch.tensor([-1, -1]), 0)


def test_the_bottom_of_a_square_has_no_slope(replayed: Replayed) -> None:
    x = torch.randn(4, 5)
    x[0, 0], x[1] = 3.0, -1.0
    found = trace(*replayed(lambda x: x.relu() ** 2, x))
    assert found.clean == (True, True)
    known = found.index[0] >= 0
    assert torch.equal(found.index[0][known], torch.arange(4)[:, None].expand(4, 5)[known])


def test_nothing_comes_from_nothing(replayed: Replayed) -> None:
    found = trace(*replayed(lambda x: x[:, :0] * 2, torch.randn(3, 4)))
    assert found.clean == (False, False)
    assert found.responds.shape == (3, 0)


def test_code_that_fails_on_moved_data_gives_no_answer(replayed: Replayed) -> None:
    x = torch.randn(3, 4)
    x[0, 0] = -1e-9  # positive as soon as it is moved
    found = trace(*replayed(lambda x: x[x > 0].cumsum(0), x))
    assert not bool(found.responds.any())


def pairs_almost_equal() -> Tensor:
    """Return (2, 40) numbers in pairs, one pair of which lies closer than a push."""
    x = torch.randn(2, 40, generator=torch.Generator().manual_seed(3))
    x[0, 6] = x[0, 7] + 3e-8
    return x


def test_a_maximum_of_two_that_are_almost_equal_is_picked_by_the_data(replayed: Replayed) -> None:
    args = replayed(lambda x: x.view(2, 20, 2).amax(-1), pairs_almost_equal().double())
    assert depends_on_values(*args)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.view(2, 20, 2)[..., 0] * 3,
        lambda x: torch.nn.functional.layer_norm(x, (40,)),
        lambda x: x @ torch.linspace(-1, 1, 1600, dtype=x.dtype).view(40, 40).sin(),
    ],
)
def test_what_stays_in_its_place(layout: Callable[[Tensor], Tensor], replayed: Replayed) -> None:
    assert not depends_on_values(*replayed(layout, pairs_almost_equal().double()))


def test_what_a_push_hides_is_no_slope(replayed: Replayed) -> None:
    low = torch.finfo(torch.float32).min

    def best_half(x: Tensor) -> Tensor:
        kept = torch.zeros_like(x, dtype=torch.bool).scatter(-1, x.relu().topk(6).indices, True)
        return torch.ones_like(x).masked_fill(~kept, low)

    x = torch.randn(2, 12, generator=torch.Generator().manual_seed(5)) - 1.0
    assert not bool(trace(*replayed(best_half, x.double())).responds.any())
