"""Keys and values in each other's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.exchange import role_of_name, treatment

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

SUM = "context = weights @ v"
SCORES = "scores = q @ k.transpose(-2, -1)"
NORMED = (SCORES, "q, v = F.normalize(q, dim=-1), F.normalize(v, dim=-1)\n        " + SCORES)
ROTATED = (
    SCORES,
    "turn = lambda t: torch.cat([t[..., 3:] * 0.6 - t[..., :3] * 0.8, t[..., 3:] * 0.8"
    " + t[..., :3] * 0.6], -1)\n        q, v = turn(q), turn(v)\n        " + SCORES,
)


@pytest.mark.parametrize(("edit", "done"), [(NORMED, "normalised"), (ROTATED, "rotated")])
def test_values_treated_as_the_queries_are(
    edit: tuple[str, str], done: str, measured: Measure, known: Known
) -> None:
    case = measured(edit)
    (site,) = case.bench.sites
    assert site.q is not None and site.k is not None
    treated = [treatment(case.bench, o) for o in (site.q, site.k, site.v)]
    assert treated == [done, "", done]
    assert known(case.site.roles).exchanged == (
        f"the values are {done} as the queries are, and the keys are not"
    )


def test_all_three_normalised_is_a_design(measured: Measure, known: Known) -> None:
    every = "q, k, v = (F.normalize(t, dim=-1) for t in (q, k, v))\n        "
    assert known(measured((SCORES, every + SCORES)).site.roles).exchanged == ""


def test_exchanged_by_name(measured: Measure, known: Known) -> None:
    case = measured((SCORES, "k, v = v, k\n        " + SCORES))
    assert known(case.site.roles).exchanged == (
        "by their names, v_proj makes values and k_proj keys"
    )
    assert case.site.info.spans.get("exchange") is None  # the sum itself is the place
    assert known(measured().site.roles).exchanged == ""


def test_the_call_of_a_helper_is_the_place(measured: Measure, known: Known) -> None:
    case = measured(
        ("class MHA", "def attend(q, k, v):\n    return (q @ k.mT / 6**0.5).softmax(-1) @ v\n\n\nclass MHA"),
        ("        scores = q @ k.transpose(-2, -1)\n        scores = scores / math.sqrt(self.d_k)\n", ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        (SUM, "context = attend(q, v, k)"),
    )  # fmt: skip
    assert known(case.site.roles).exchanged != ""
    assert case.marked(case.site.info.spans["exchange"]) == "attend(q, v, k)"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("attn.to_k", "k"),
        ("W_value", "v"),
        ("valueLayer", "v"),
        ("heads.0.wq", "q"),
        ("keys.3", "k"),
        ("to_kv", ""),
        ("key_value", ""),
        ("in_proj_weight", ""),
    ],
)
def test_names_of_one_role_alone(name: str, role: str) -> None:
    assert role_of_name(name) == role
