"""What turning over single elements of a mask does, and where that lands."""

from __future__ import annotations

from mha_lint.facts.masks.effects import effects_of, joins, landing, reads, spread
from mha_lint.facts.masks.held import rows_of
from mha_lint.facts.masks.roots import roots_of
from tests.facts.conftest import Case, Measure
from tests.facts.masks.masked import IDS, IDS_CALL, MASKED, MASKED_CALL


def landed(case: Case) -> tuple[int, int, int, int]:
    (site,) = case.bench.sites
    (root,) = roots_of(case.bench, site)
    found = landing(
        root,
        effects_of(case.bench, site, root),
        rows_of(case.bench, site),
        alone=root.entry is None,
    )
    return found.columns, found.rows, found.elsewhere, found.wrong_sample


def test_each_element_moves_one_column(measured: Measure) -> None:
    case = measured(text=MASKED, call=MASKED_CALL)
    (site,) = case.bench.sites
    (root,) = roots_of(case.bench, site)
    effects = effects_of(case.bench, site, root)
    assert [e.index for e in effects] == list(range(10))
    assert reads(effects) == "keep"
    assert not joins(case.bench, site, root)
    first = effects[0]
    assert first.shows[:4, :, 0].all() and int(first.moves.sum()) == 4 * 5
    # 4 heads of 10 elements with 5 queries each, the diagonal left aside
    assert landed(case) == (4 * 10 * 4, 0, 0, 0)


def test_the_other_way_round_it_hides(measured: Measure) -> None:
    case = measured(("== 0", "== 1"), text=MASKED, call=MASKED_CALL)
    (site,) = case.bench.sites
    (root,) = roots_of(case.bench, site)
    assert reads(effects_of(case.bench, site, root)) == "hide"


def test_on_the_query_axis(measured: Measure) -> None:
    case = measured(("[:, None, None, :]", "[:, None, :, None]"), text=IDS, call=IDS_CALL)
    columns, rows, elsewhere, _ = landed(case)
    assert (columns, rows > 0, elsewhere) == (0, True, 0)


def test_in_the_other_sample(measured: Measure) -> None:
    case = measured(("mask[:, None, None, :]", "mask.flip(0)[:, None, None, :]"), text=MASKED,
                    call=MASKED_CALL)  # fmt: skip
    columns, _, _, wrong = landed(case)
    assert (columns, wrong) == (0, 4 * 10 * 5)


def test_at_another_position(measured: Measure) -> None:
    case = measured(("mask[:, None, None, :]", "mask.flip(1)[:, None, None, :]"), text=MASKED,
                    call=MASKED_CALL)  # fmt: skip
    columns, _, elsewhere, wrong = landed(case)
    # position 2 of 5 stays where it is; every other one lands on one that is not its own
    assert (columns, wrong) == (4 * 2 * 4, 0)
    assert elsewhere > columns


def test_elements_that_are_joined(measured: Measure) -> None:
    case = measured(
        ("mask[:, None, None, :] == 0", "(torch.arange(T) >= mask.sum(1, keepdim=True))[:, None, None]"),
        text=MASKED,
        call=MASKED_CALL,
    )  # fmt: skip
    (site,) = case.bench.sites
    (root,) = roots_of(case.bench, site)
    assert (root.argument, root.compares) == ("mask", "")
    assert joins(case.bench, site, root)


def test_places_are_spread_with_both_ends() -> None:
    assert spread(5) == [0, 1, 2, 3, 4]
    many = spread(1000)
    assert (many[0], many[-1], len(many) <= 26) == (0, 999, True)
    assert len({place % 10 for place in many}) > 5
