"""Each operation that joins scores or weights with another tensor: gain and offset, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.masks.steps import Step, steps_of
from tests.facts.masks.spelled import CAUSAL, HIDDEN, masked

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

FUTURE = torch.ones(5, 5).triu(1).bool()


def steps(case: Case) -> tuple[Step, ...]:
    return steps_of(case.bench, case.bench.sites[0].all[0])


@pytest.mark.parametrize("name", CAUSAL)
def test_a_mask_however_it_is_spelled(name: str, measured: Measure) -> None:
    text, how, fill = CAUSAL[name]
    (step,) = steps(measured(text=text))
    assert (step.how, step.before, step.inside) == (how, True, False)
    offset = step.offset.reshape(-1, 5, 5)
    gain = step.gain.reshape(-1, 5, 5)
    assert bool((offset[:, FUTURE] == fill).all())
    assert bool((offset[:, ~FUTURE] == 0).all())
    torch.testing.assert_close(gain[:, ~FUTURE], torch.ones_like(gain[:, ~FUTURE]))
    if how == "filled":
        assert bool((gain[:, FUTURE] == 0).all())


def test_the_operands_of_a_step(measured: Measure) -> None:
    case = measured(text=CAUSAL["filled"][0])
    (step,) = steps(case)
    (side,) = step.sides
    assert case.bench.recording.values[side].dtype == torch.bool
    assert case.bench.recording.values[step.data].shape == (2, 4, 5, 5)


def test_a_product_multiplies_and_fills_nothing_but_zeros(measured: Measure) -> None:
    text = masked("keep = torch.ones(T, T).tril()", "scores = scores * keep")
    (step,) = steps(measured(text=text))
    assert (step.how, step.multiplies, step.adds, step.fills) == ("multiplied", True, False, True)
    torch.testing.assert_close(step.gain[0, 0], torch.ones(5, 5).tril().double())


def test_a_fill_multiplies_nothing(measured: Measure) -> None:
    (step,) = steps(measured(text=CAUSAL["filled"][0]))
    assert (step.fills, step.multiplies, step.adds) == (True, False, False)


def test_a_bias_for_each_head(measured: Measure) -> None:
    text = masked(
        "slope = torch.tensor([0.5, 0.25, 0.125, 0.0625]).view(4, 1, 1)",
        "at = torch.arange(T)",
        "scores = scores - slope * (at[:, None] - at).abs()",
    )
    (step,) = steps(measured(text=text))
    assert (step.how, step.adds, step.fills) == ("added", True, False)
    torch.testing.assert_close(
        step.offset[1, :, 0, 2], torch.tensor([-1.0, -0.5, -0.25, -0.125]).double()
    )


def test_elements_taken_by_their_place(measured: Measure) -> None:
    text = masked("scores = scores.tril()")
    (step,) = steps(measured(text=text))
    assert (step.how, step.sides) == ("filled", ())
    torch.testing.assert_close(step.gain[0, 0], torch.ones(5, 5).tril().double())


def test_masks_inside_of_a_softmax_written_out(measured: Measure) -> None:
    text = masked(HIDDEN.strip()).replace(
        "weights = scores.softmax(dim=-1)",
        "e = scores.exp() * ~hidden\n        weights = e / e.sum(-1, keepdim=True)",
    )
    (step,) = steps(measured(text=text))
    assert (step.before, step.inside, step.how) == (True, True, "multiplied")


def test_masks_behind_the_softmax(measured: Measure) -> None:
    text = masked(HIDDEN.strip()).replace(
        "        context =", "        weights = weights.masked_fill(hidden, 0)\n        context ="
    )
    (step,) = steps(measured(text=text))
    assert (step.before, step.inside, step.how) == (False, False, "filled")


def test_a_tensor_that_gives_its_type_or_shape_is_no_operand(measured: Measure) -> None:
    text = masked(
        HIDDEN.strip(), "scores = scores.masked_fill(hidden.expand_as(scores), -1e9).type_as(q)"
    )
    (step,) = steps(measured(text=text))
    assert bool((step.offset[..., FUTURE] == -1e9).all())


def test_additive_scores(measured: Measure) -> None:
    text = """\
class Additive(nn.Module):
    def __init__(self, d, a):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, a), nn.Linear(d, a), nn.Linear(a, 1)

    def forward(self, x, memory, mask):
        hidden = torch.tanh(self.q(x)[:, :, None] + self.k(memory)[:, None])
        e = self.v(hidden).squeeze(-1)
        e = e.masked_fill(mask[:, None] == 0, -1e9)
        return e.softmax(-1) @ memory
"""
    call = "torch.randn(2, 3, 8), torch.randn(2, 4, 8), torch.tensor([[1] * 4, [1] * 3 + [0]])"
    case = measured(text=text, build="Additive(8, 6)", call=call)
    (step,) = steps(case)
    assert (step.how, step.before) == ("filled", True)
    assert step.offset[1, :, 3].tolist() == [-1e9] * 3
    assert step.gain.sum() == 2 * 3 * 4 - 3


def test_no_mask(measured: Measure) -> None:
    assert steps(measured()) == ()
