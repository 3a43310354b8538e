"""Parts of a run for several machines: each has whole files, and together they are the run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec


def part_of(
    targets: Sequence[TargetSpec | NotChecked], index: int, count: int
) -> list[TargetSpec | NotChecked]:
    """Return the `index`-th (from 1) of `count` parts of `targets`, a stretch of their order.

    The targets of one file stay together: what is said of a file needs all of them.
    """
    out: list[TargetSpec | NotChecked] = []
    before = 0
    for _, group in groupby(targets, _file):
        own = list(group)
        middle = before + len(own) / 2
        before += len(own)
        if min(int(middle * count / len(targets)), count - 1) == index - 1:
            out += own
    return out


def _file(one: TargetSpec | NotChecked) -> str:
    if isinstance(one, NotChecked):
        return one.target.partition("::")[0]
    return one.path or one.text
