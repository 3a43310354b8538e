"""Facts of code that cannot be run on other data, since the data decides what it reads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.sites.finder import DATA_ERRORS

P = ParamSpec("P")
T = TypeVar("T")


def unless_data_decides(
    measure: Callable[Concatenate[Bench, P], Fact[T]],
) -> Callable[Concatenate[Bench, P], Fact[T]]:
    """Make `measure` return Unknown where code that picks by its data fails on moved data.

    Such code (a sort and a count, a list of positive pairs) may index out of range, or give another
    number of elements. Where the data decides nothing, an error is a bug of ours and is raised.
    """

    @functools.wraps(measure)
    def measured(bench: Bench, /, *args: P.args, **kwargs: P.kwargs) -> Fact[T]:
        try:
            return measure(bench, *args, **kwargs)
        except DATA_ERRORS as error:
            if not bench.dependence.picks:
                raise
            first = str(error).partition("\n")[0]
            return Unknown(f"the data decides what is read, and on other data it fails: {first}")

    return measured
