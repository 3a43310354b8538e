"""One call in training mode with its backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.capture import random_parameters
from mha_lint.facts.bench import measuring_inputs
from mha_lint.facts.gradients import Drawn, NoGradientError, cuts, gradients

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

V = "v = self.v_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)"
RETURN = "return self.out_proj(merged)"
WEIGHTS = "weights = scores.softmax(dim=-1)"


def drawn(case: Case) -> Drawn:
    recording = case.bench.recording
    return Drawn(tuple(measuring_inputs(recording, 0)), random_parameters(recording, 0))


def test_every_parameter_gets_one(measured: Measure) -> None:
    case = measured()
    found = gradients(case.subject, drawn(case))
    assert found.trainable == {
        f"{p}.{w}" for p in ("q_proj", "k_proj", "v_proj", "out_proj") for w in ("weight", "bias")
    }
    assert all(
        g is not None and bool(g.any()) for n, g in found.found.items() if n != "k_proj.bias"
    )
    assert found.largest > 0


def test_the_users_module_stays_what_it_is(measured: Measure) -> None:
    case = measured()
    module = case.subject.module
    assert isinstance(module, torch.nn.Module)
    before = {n: p.detach().clone() for n, p in module.named_parameters()}
    training = module.training
    gradients(case.subject, drawn(case))
    assert module.training is training
    assert all(torch.equal(p, before[n]) and p.grad is None for n, p in module.named_parameters())


def test_what_is_cut_off_gets_none(measured: Measure) -> None:
    case = measured((V, V + "\n        v = v.detach()"))
    found = gradients(case.subject, drawn(case))
    assert found.of("v_proj.weight") is None
    (cut,) = [c for c in cuts(case.subject, drawn(case)) if "v_proj.weight" in c.parameters]
    assert cut.span is not None and cut.span.line == case.line("v.detach()")
    assert cut.parameters == {"v_proj.weight", "v_proj.bias"}


@pytest.mark.parametrize(
    "last", ["return self.out_proj(merged).detach()", "return self.out_proj(merged).argmax(-1)"]
)
def test_no_output_asks_for_a_gradient(last: str, measured: Measure) -> None:
    case = measured((RETURN, last))
    with pytest.raises(NoGradientError, match="no output asks for a gradient"):
        gradients(case.subject, drawn(case))


def test_a_backward_pass_that_fails(measured: Measure) -> None:
    case = measured(
        (WEIGHTS, "weights = scores.exp()\n        weights /= weights.sum(-1, keepdim=True)")
    )
    with pytest.raises(NoGradientError, match="the backward pass itself fails"):
        gradients(case.subject, drawn(case))


def test_a_call_that_fails_in_training_mode_is_told_as_it_is(measured: Measure) -> None:
    case = measured((RETURN, f"if self.training: raise KeyError('labels')\n        {RETURN}"))
    with pytest.raises(KeyError, match="labels"):
        gradients(case.subject, drawn(case))
