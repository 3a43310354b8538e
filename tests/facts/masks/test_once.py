"""Results that are kept as long as a bench lives."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.once import once
from mha_lint.sites.site import Site
from tests.facts.conftest import Measure


def test_each_question_is_answered_once(measured: Measure) -> None:
    asked: list[object] = []

    @once
    def answer(bench: Bench, site: Site, *, loud: bool = False) -> int:
        """Answer."""
        asked.append((site.kind, loud))
        return len(asked)

    bench = measured().bench
    (site,) = bench.sites
    assert (answer(bench, site), answer(bench, site)) == (1, 1)
    assert (answer(bench, site, loud=True), answer(bench, site, loud=True)) == (2, 2)
    assert answer.__doc__ == "Answer."
