"""Defaults of one head and no dropout do not hide what the code does at others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

Write = Callable[..., Path]

SOURCE = """
class A(nn.Module):
    def __init__(self, dim, num_heads=1, dropout=0.0, strict=False):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return (q @ k.mT).softmax(-1) @ v
"""


def opened(path: Path, **stated: str) -> Subject:
    spec = TargetSpec(text="A", path=str(path), qualname="A", **stated)  # type: ignore[arg-type]
    outcome = open_subject(spec, timeout=20)
    assert isinstance(outcome, Subject), outcome
    return outcome


def test_several_heads_and_some_dropout(write: Write) -> None:
    subject = opened(write(SOURCE))
    assert subject.build == "A(dim=24, num_heads=4, dropout=0.1)"
    assert subject.how == "inferred"
    assert "built with num_heads=4 in place of the default" in subject.notes
    assert "built with dropout=0.1 in place of the default" in subject.notes


ASSERTED = "dim % num_heads == 0"


@pytest.mark.parametrize(
    ("old", "new", "build"),
    [
        (ASSERTED, "num_heads in (1, 4)", "A(dim=24, num_heads=4, dropout=0.1)"),
        (ASSERTED, "num_heads in (1, 2)", "A(dim=24, num_heads=2, dropout=0.1)"),
        (ASSERTED, "num_heads == 1", "A(dim=24, dropout=0.1)"),
        ("dropout=0.0", "dropout=0.2", "A(dim=24, num_heads=4)"),
        ("num_heads=1", "num_heads=3", "A(dim=24, dropout=0.1)"),
    ],
)
def test_what_the_class_refuses_or_has_already_stays(
    write: Write, old: str, new: str, build: str
) -> None:
    assert opened(write(SOURCE.replace(old, new))).build == build


def test_what_the_user_or_the_file_builds_stays(write: Write) -> None:
    path = write(SOURCE)
    assert opened(path, build="A(24)").build == "A(24)"
    path = write(SOURCE + '\n\nif __name__ == "__main__":\n    print(A(8)(torch.randn(2, 5, 8)))\n')
    assert opened(path).build == "A(8)"
