"""Output: the merged heads through the output projection, once."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.fit import Departure, Fit, unique
from mha_lint.oracle.reference import linear
from mha_lint.oracle.view import SiteView


def fits(view: SiteView, level: int, thorough: bool = False) -> Iterator[Fit]:
    """Yield how the output comes from the site's own merged heads, up to `level` departures."""
    found = list(_candidates(view, right=True))
    yield from found
    if level < 1 or (found and not thorough):
        return
    yield from unique(_candidates(view, right=False))


def _candidates(view: SiteView, *, right: bool) -> Iterator[Fit]:
    data = view.data
    if data.merged is None or data.output is None or data.output_weight is None:
        return
    weight, bias = data.output_weight, data.output_bias

    def once(merged: Tensor) -> Tensor:
        return linear(merged, weight, bias)

    def without_bias(merged: Tensor) -> Tensor:
        return linear(merged, weight)

    def twice(merged: Tensor) -> Tensor:
        return once(once(merged))

    def absent(merged: Tensor) -> Tensor:
        return merged

    key = "output-projection"
    options = (
        [((), once)]
        if right
        else [
            ((Departure(key, "absent", "no output projection"),), absent),
            ((Departure(key, "twice", "the output projection applied twice"),), twice),
            ((Departure(key, "no bias", "an output projection without its bias"),), without_bias),
        ]
    )
    for departures, apply in options:
        try:
            candidate = apply(data.merged)
        except RuntimeError:  # widths that do not fit: this reading is impossible
            continue
        left = difference(data.output, candidate)
        if left <= RELATIVE * magnitude(data.output):
            yield Fit(departures, left, apply)
