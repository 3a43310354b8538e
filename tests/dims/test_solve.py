"""The search agrees with trying everything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mha_lint.dims.data import Divides, Equation, Relation
from mha_lint.dims.solve import forced, possible, solutions


def product(value: int, *names: str) -> Equation:
    return Equation(((1, names),), value)


def test_widths_and_head_dim_give_the_heads() -> None:
    relations = [product(4096, "h", "d_k"), product(1024, "h_kv", "d_k"), product(128, "d_k")]
    assert forced(relations) == {"h": 32, "h_kv": 8, "d_k": 128}


def test_low_rank_widths_alone_give_all() -> None:
    relations: list[Relation] = [
        Equation(((1, ("h", "nope")), (1, ("h", "rope"))), 24576),
        Equation(((1, ("kv_rank",)), (1, ("rope",))), 576),
        product(512, "kv_rank"),
        Equation(((1, ("h", "nope")), (1, ("h", "d_v"))), 32768),
        product(16384, "h", "d_v"),
    ]
    assert forced(relations) == {"h": 128, "nope": 128, "rope": 64, "kv_rank": 512, "d_v": 128}


def test_nothing_is_forced_where_many_fit() -> None:
    assert forced([product(720720, "h", "d_k")]) == {}
    assert len(solutions([product(12, "h", "d_k")])) == 6


def test_no_solution() -> None:
    assert not possible([product(4096, "h", "d_k"), product(96, "d_k")])
    assert not possible(
        [product(4096, "h", "d_k"), product(1536, "h_kv", "d_k"), Divides("h_kv", "h")]
    )


def test_a_sum_too_long_to_search_is_not_called_impossible() -> None:
    both = ((1, ("h",)), (1, ("d_k",)))
    assert possible([Equation(both, 10**9), Equation(both, 10**9 + 1)])
    assert not possible([Equation(both, 100), Equation(both, 101)])


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 90))
def test_the_search_finds_what_trying_everything_finds(q: int, k: int, joined: int) -> None:
    relations: list[Relation] = [
        product(q, "h", "d_k"),
        Equation(((1, ("h", "d_k")), (2, ("h_kv", "d_k"))), joined),
        Divides("h_kv", "h"),
    ]
    found = {(s["h"], s["h_kv"], s["d_k"]) for s in solutions(relations)}
    tried = {
        (h, g, d)
        for h in range(1, 61)
        for d in range(1, 61)
        if h * d == q
        for g in range(1, h + 1)
        if h % g == 0 and h * d + 2 * g * d == joined
    }
    assert found == tried
    grouped: list[Relation] = [
        product(q, "h", "d_k"),
        product(k, "h_kv", "d_k"),
        Divides("h_kv", "h"),
    ]
    assert possible(grouped) == any(
        q % d == k % d == 0 and (q // d) % (k // d) == 0 for d in range(1, min(q, k) + 1)
    )
