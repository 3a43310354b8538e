"""An assertion for the user's own tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mha_lint.api import Report, check

if TYPE_CHECKING:
    from torch import nn


def assert_attention(
    module: nn.Module | Callable[..., Any],
    *args: Any,
    expect: Sequence[str] = (),
    select: Sequence[str] = ("ALL",),
    ignore: Sequence[str] = (),
    fail_on: str = "warning",
    **kwargs: Any,
) -> Report:
    """Check ``module(*args, **kwargs)`` as `mha_lint.check` does, and return its report.

    Raises:
        AssertionError: there is a finding at or above `fail_on` ("note", "warning" or "error"), or the
            call could not be checked, or holds no attention. Its text is the report.
        UsageError: see `mha_lint.check`.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    report = check(module, *args, expect=expect, select=select, ignore=ignore, **kwargs)
    if not report.checked or report.above(fail_on):
        raise AssertionError(f"{report.target.target} is not what it should be\n\n{report}")
    return report
