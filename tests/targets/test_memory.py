"""A guess that would take more memory than it may fails, and nothing else does."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
import torch

from mha_lint.model.report import NotChecked
from mha_lint.targets import memory
from mha_lint.targets.memory import memory_limit, refused

pytestmark = pytest.mark.skipif(
    not memory.STATM.exists() or torch.cuda.is_available(), reason="no limit can be set here"
)


def test_too_large_an_allocation_fails_and_the_limit_goes_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with (
        memory_limit(1 << 28),
        pytest.raises(RuntimeError, match="alloc"),
    ):
        torch.empty(1 << 29, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert torch.empty(1 << 29, dtype=torch.uint8).numel() == 1 << 29


def test_a_small_one_does_not() -> None:
    with memory_limit(1 << 28):
        assert torch.zeros(1 << 20).sum() == 0


def test_a_stricter_limit_of_the_system_stays() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    strict = int(memory.STATM.read_text().split()[0]) * resource.getpagesize() + (1 << 29)
    resource.setrlimit(resource.RLIMIT_AS, (strict, hard))
    try:
        with memory_limit(1 << 30):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == strict
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_no_limit_where_a_gpu_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with memory_limit(1 << 20):
        assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("shape '[3, 7]' is invalid for input of size 20"), False),
    ],
)
def test_what_says_that_memory_was_refused(error: Exception, wanted: bool) -> None:
    assert refused(error) is wanted


def test_a_guess_that_takes_too_much_is_told(opened: Callable[..., object]) -> None:
    source = """
    class Huge(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            self.table = torch.empty(d_model * 10**9)
        def forward(self, x):
            return (x @ x.mT).softmax(-1) @ x
    """
    found = opened(source, "Huge")
    assert isinstance(found, NotChecked)
    assert "it takes more than 2 GB of memory, the limit of one try" in found.reason
