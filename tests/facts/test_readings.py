"""Names for numbers: right ones first, stated ones by the caller's own name."""

from __future__ import annotations

import pytest
import torch

from mha_lint.facts.readings import by_construction, is_right, matching, readings, stated_as
from mha_lint.model.facts import Dims

APART = Dims(d_model=30, num_heads=5, num_kv_heads=5, head_dim=6, v_dim=6, t_q=7, t_k=11, batch=3)
SQUARE = Dims(d_model=64, num_heads=8, num_kv_heads=8, head_dim=8, v_dim=8, t_q=10, t_k=10, batch=2)


def test_every_reading_is_what_its_name_says() -> None:
    found = readings(APART)
    assert found["1/sqrt(head_dim)"] == 6**-0.5
    assert found["1/sqrt(d_model)"] == 30**-0.5
    assert found["1/head_dim"] == 1 / 6
    assert found["1/d_model"] == 1 / 30
    assert found["sqrt(head_dim)"] == 6**0.5
    assert found["1/sqrt(num_heads)"] == 5**-0.5
    assert found["1/sqrt(T_k)"] == 11**-0.5
    assert found["1/T_q"] == 1 / 7
    assert found["1/head_dim**2"] == 1 / 36
    assert found["1/sqrt(batch)"] == 3**-0.5
    assert found["1"] == 1
    assert "1/sqrt(3*head_dim)" not in found
    assert readings(APART, terms=3)["1/sqrt(3*head_dim)"] == 18**-0.5


@pytest.mark.parametrize("name", readings(APART))
def test_readings_have_one_name_where_sizes_differ(name: str) -> None:
    found = matching(readings(APART)[name], APART)
    assert found[0] in (name, "1/sqrt(d_model)", "1/sqrt(head_dim)")
    assert len(found) == 1


def test_coincidences_are_listed_with_the_right_one_first() -> None:
    assert matching(8**-0.5, SQUARE)[:2] == ["1/sqrt(head_dim)", "1/sqrt(num_heads)"]
    assert matching(1 / 8, SQUARE)[:2] == ["1/sqrt(d_model)", "1/head_dim"]
    assert matching(0.123, SQUARE) == []


def test_rounding_to_float32_is_allowed() -> None:
    assert matching(6**-0.5 * (1 + 6e-8), APART) == ["1/sqrt(head_dim)"]
    assert matching(6**-0.5 * (1 + 1e-4), APART) == []


def test_a_sign_does_not_change_the_name() -> None:
    assert matching(-(30**-0.5), APART) == ["1/sqrt(d_model)"]


@pytest.mark.parametrize(
    ("name", "terms", "right"),
    [
        ("1/sqrt(head_dim)", 1, True),
        ("1/sqrt(head_dim)", 3, True),
        ("1/sqrt(d_model)", 1, False),
        ("1/head_dim", 1, False),
        ("1", 1, False),
        ("sqrt(head_dim)", 1, False),
        ("1/sqrt(num_heads*head_dim)", 3, False),
        ("1/sqrt(2*head_dim)", 1, False),
        ("1/sqrt(2*head_dim)", 2, True),
        ("1/sqrt(3*head_dim)", 2, False),
    ],
)
def test_which_names_are_right(name: str, terms: int, right: bool) -> None:
    assert is_right(name, terms) is right


@pytest.mark.parametrize(
    ("value", "stated", "name"),
    [
        (0.3, {"softmax_scale": 0.3}, "softmax_scale"),
        (0.5, {"temperature": 2.0}, "1/temperature"),
        (256**-0.5, {"query_pre_attn_scalar": 256}, "1/sqrt(query_pre_attn_scalar)"),
        (2.0, {"tau": 4.0}, "sqrt(tau)"),
        (1 / 24, {"d_model": 24}, None),
        (0.3, {"dropout": 0.3}, None),
        (0.3, {"strength": 0.3}, "strength"),
        (8.0, {"strength": 8}, None),
        (0.25, {"ffn_dim_multiple": 4}, None),
        (1.0, {"scale": 1.0}, None),
        (1.0, {"scale": True}, None),
        (0.3, {"scale": 0.4}, None),
    ],
)
def test_what_the_caller_stated(value: float, stated: dict[str, float], name: str | None) -> None:
    assert stated_as(value, stated) == name


def test_a_constant_kept_in_a_half_type_is_known_again() -> None:
    stored = float(torch.tensor(6**-0.5, dtype=torch.float16))
    dims = APART
    assert matching(stored, dims) == []
    assert matching(stored, dims, near=torch.finfo(torch.float16).eps) == ["1/sqrt(head_dim)"]


def test_quantities_of_the_construction() -> None:
    sizes = {"dim": 64, "kv_heads": 2, "bias": True, "dropout": 0.1, "one": 1}
    assert by_construction(32**-0.5, sizes) == {"1/sqrt(dim/kv_heads)": 2}
    assert by_construction(1 / 64, sizes) == {"1/dim": 1}
    assert by_construction(8.0, sizes) == {"sqrt(dim)": 1}
    assert by_construction(0.1, sizes) == {}
