"""Names of too many parts, and texts that only have many dots."""

from __future__ import annotations

import time

import pytest

from mha_lint.model.dotted import is_deep


@pytest.mark.parametrize(
    "text",
    [
        "from " + "a." * 600 + "a import b",
        "import é" + " . é" * 600,
        "import a" + ".\\\n  a" * 600,
        "x = 1\n[" + "'a b'.\"c\".d-e." * 200 + "f]",
    ],
)
def test_a_name_of_many_parts(text: str) -> None:
    assert is_deep(text)


@pytest.mark.parametrize(
    "text",
    [
        "from " + "a." * 400 + "a import b",
        "x = [" + "1.5, " * 5000 + "]",
        "a.b(c).d\n" * 5000,
        "# One sentence. And another one. " * 2000,
        "." * 9000,
        "a" * 1_000_000,
        " " * 1_000_000,
        "a " * 500_000,
        "'" * 1_000_000,
        '"a' * 300_000,
    ],
)
def test_other_texts_in_no_time(text: str) -> None:
    start = time.process_time()
    assert not is_deep(text)
    assert time.process_time() - start < 2
