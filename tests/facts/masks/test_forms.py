"""What a built mask looks like."""

from __future__ import annotations

import torch

from mha_lint.facts.masks.forms import built_form


def test_a_mask_of_nothing_has_no_form() -> None:
    assert built_form(torch.zeros(2, 0, dtype=torch.bool), given=True) is None
    assert built_form(torch.zeros(0, 3), given=False) is None


def test_a_mask_of_truth_values_has_one() -> None:
    form = built_form(torch.tensor([[True, False], [True, True]]), given=False)
    assert form is not None
    assert form.kind == "bool"
