"""What a watcher saw, judged: the innermost call that holds a site."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mha_lint.engine.watched import check_watched
from mha_lint.model.report import NotChecked, Status
from mha_lint.model.settings import Settings, UsageError
from mha_lint.targets.live import Seen, Snapshot, take

SETTINGS = Settings(str(Path(__file__).parent))


class Products(nn.Module):
    """Two products of activations that are no attention."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + (x.mT @ x @ x.mT).mT)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Products()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        weights = (self.q(x) @ self.k(x).mT / 4).softmax(-2)
        return self.o(weights @ self.v(x))  # type: ignore[no-any-return]


def nested() -> Snapshot:
    module, x = Around(), torch.randn(2, 5, 16)
    return take(module.inner, (x,), {}, enclosing=(take(module, (x,), {}),))


def test_the_next_call_around_is_judged_where_the_innermost_holds_no_site() -> None:
    (target,) = check_watched(Seen((nested(),)), SETTINGS).targets
    assert target.target == "test_watched.py::Around"
    assert [f.code for f in target.findings] == ["MHA204"]


def test_products_that_are_no_attention_are_no_failure() -> None:
    one = take(Products(), (torch.randn(2, 5, 16),), {})
    (target,) = check_watched(Seen((one,)), SETTINGS).targets
    assert target.status is Status.NO_ATTENTION


def test_what_could_not_be_copied_is_not_checked_and_crashes_are_told() -> None:
    left, flat = NotChecked("large", target="a.py::A"), NotChecked("flat", target="b.py")
    seen = Seen((), (left,), (flat,), ("Traceback\nValueError: ours\n",))
    report = check_watched(seen, SETTINGS)
    assert [t.reason for t in report.targets] == ["large", "flat"]
    assert [c.error for c in report.crashes] == ["ValueError: ours"]
    assert [t.reason for t in check_watched(seen, SETTINGS, flat=False).targets] == ["large"]


def test_the_defaults_of_the_program_do_not_matter() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        one = take(Around().float(), (torch.randn(2, 5, 16).float(),), {})
        report = check_watched(Seen((one,)), SETTINGS)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert [f.code for f in report.findings()] == ["MHA204"]


def test_words_of_the_contract_are_checked() -> None:
    with pytest.raises(UsageError, match="nonsense"):
        check_watched(Seen(()), SETTINGS, expect=("nonsense",))
