"""Masks and comparisons, and what each of their elements is about."""

from __future__ import annotations

import torch

from mha_lint.facts.masks.roots import all_roots, mask_closure, roots_of, whole
from mha_lint.sites.dependence import op
from tests.facts.conftest import Measure
from tests.facts.masks.masked import IDS, IDS_CALL, MASKED, MASKED_CALL, TRIANGLE


def test_an_argument(measured: Measure) -> None:
    case = measured(text=MASKED, call=MASKED_CALL)
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert (root.argument, root.compares, root.additive, root.entry) == ("mask", "", False, None)
    assert root.placed and root.per_sample
    assert root.samples.tolist() == [[0] * 5, [1] * 5]
    assert root.positions.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert whole(case.bench, root, root.on).tolist() == [[1] * 5] * 2


def test_token_ids_compared_with_padding(measured: Measure) -> None:
    case = measured(text=IDS, call=IDS_CALL)
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert (root.argument, root.compares, root.constant) == ("ids", "ne", 0.0)
    assert root.entry is not None and op(root.entry.node) == "embedding"
    assert root.positions.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_lengths_count_positions(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, lengths)"),
        ("mask[:, None, None, :] == 0", "(torch.arange(T) >= lengths[:, None])[:, None, None]"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([5, 3])",
    )
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert (root.argument, root.compares, root.constant) == ("lengths", "ge", None)
    assert root.samples.tolist() == [[0] * 5, [1] * 5]
    assert root.positions.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_data_that_is_compared_with_zero(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x)"),
        ("mask[:, None, None, :] == 0", "(x.abs().sum(-1) == 0)[:, None, None, :]"),
        text=MASKED,
        call="torch.randn(2, 5, 24)",
    )
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert (root.argument, root.compares) == ("x", "eq")
    assert root.samples.tolist() == [[0] * 5, [1] * 5]
    assert root.positions.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_an_additive_argument(measured: Measure) -> None:
    case = measured(
        ("        hidden = mask[:, None, None, :] == 0\n", ""),
        ("scores.masked_fill(hidden, float(\"-inf\"))", "scores + mask"),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.full((5, 5), -1e9).triu(1)",
    )  # fmt: skip
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert (root.additive, root.on) == (True, 0.0)
    assert not root.per_sample


def test_a_mask_without_data_has_no_root(measured: Measure) -> None:
    case = measured(text=TRIANGLE)
    (site,) = case.bench.sites
    assert roots_of(case.bench, site) == []
    assert {"tril", "eq"} <= {op(n) for n in mask_closure(case.bench, site)}


def test_masks_that_nothing_reads_are_among_all(measured: Measure) -> None:
    case = measured(
        ("        keep = real[:, None, None, :]\n", ""),
        ("attn_mask=keep", "attn_mask=None"),
        text=IDS,
        call=IDS_CALL,
    )
    assert roots_of(case.bench, case.bench.sites[0]) == []
    (root,) = all_roots(case.bench)
    assert root.argument == "ids"


def test_sizes_that_may_be_samples_or_positions_stay_open(measured: Measure) -> None:
    case = measured(
        ("mask[:, None, None, :] == 0", "mask == 0"),
        text=MASKED,
        call="torch.randn(5, 5, 24), torch.ones(5, 5).tril()",
    )
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert torch.equal(root.samples, torch.full((5, 5), -1))


def test_as_many_numbers_as_samples_and_positions_tell_neither(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, at)"),
        ("mask[:, None, None, :] == 0", "torch.arange(T) > at[:, None]"),
        text=MASKED,
        call="torch.randn(5, 5, 24), torch.tensor([0, 1, 2, 3, 4])",
    )
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert (root.argument, root.per_sample) == ("at", False)


def test_lengths_less_one_over_repeated_places(measured: Measure) -> None:
    places = "torch.arange(T).expand(B, -1).gt(lengths[:, None] - 1)[:, None, None]"
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, lengths)"),
        ("mask[:, None, None, :] == 0", places),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([5, 3])",
    )
    (root,) = roots_of(case.bench, case.bench.sites[0])
    assert root.samples.tolist() == [[0] * 5, [1] * 5]
    assert root.positions.tolist() == [[0, 1, 2, 3, 4]] * 2
