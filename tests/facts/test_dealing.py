"""Elements that a plain view dealt out anew, as a trace shows them."""

from __future__ import annotations

import torch
from torch import Tensor

from mha_lint.facts.dealing import redealt
from mha_lint.sites.trace import Trace


def dealt(made: Tensor, *, weak: bool = False, nowhere: bool = False) -> bool:
    """Say what is found of tokens (sample, position) that stand as `made` does, 3 channels each."""
    sample, position = (
        (made // 3)[..., None].expand(-1, -1, 3),
        (made % 3)[..., None].expand(-1, -1, 3),
    )
    if weak:
        position = position.clone()
        position[0, 1, 2] = -1
    if nowhere:
        position = position.clone()
        position[0, 1] = -1
    responds = torch.ones(sample.shape, dtype=torch.bool)
    traced = Trace((2, 3), (sample, position), (True, True), responds, None)
    return redealt(traced, (0, 1), (1,), (0,))


TOKENS = torch.arange(6).view(2, 3)


def test_a_view_deals_tokens_out() -> None:
    assert dealt(TOKENS.T.reshape(2, 3)) is True
    assert dealt(TOKENS) is False


def test_an_element_too_weak_to_be_traced_is_no_evidence() -> None:
    assert dealt(TOKENS, weak=True) is False
    assert dealt(TOKENS.T.reshape(2, 3), weak=True) is True
    assert dealt(TOKENS.T.reshape(2, 3), nowhere=True) is False
