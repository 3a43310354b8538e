"""Numbers that are guessed for constructor arguments."""

from __future__ import annotations

import pytest

from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.sized import sized
from mha_lint.targets.infer.vocabulary import Role, role_of


@pytest.mark.parametrize("name", ["num_queries", "num_latents", "n_seeds", "mem_tokens"])
def test_rows_of_a_table_coincide_with_no_other_size(name: str) -> None:
    first = SCHEMES[0]
    guess = int(sized(name, Role.COUNT, first)[0])
    assert guess == 5
    others = (first.batch, first.length, first.source, first.heads, first.kv_heads, first.head_dim)
    assert guess not in others and guess % first.heads


def test_other_counts_stay_small() -> None:
    assert sized("num_experts", Role.COUNT, SCHEMES[0]) == ["2", "1"]


@pytest.mark.parametrize("name", ["latent_dim", "bottleneck_width", "compressed_dim"])
def test_a_width_between_two_maps_is_narrower_than_both(name: str) -> None:
    assert sized(name, Role.WIDTH, SCHEMES[0]) == ["16", "24"]


def test_other_widths_are_the_width() -> None:
    assert sized("hidden_dim", Role.WIDTH, SCHEMES[0]) == ["24"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("width_factor", Role.RATIO),
        ("depth_multiplier", Role.RATIO),
        ("kv_lora_rank", Role.COUNT),
        ("width", Role.WIDTH),
        ("depth", Role.LAYERS),
    ],
)
def test_roles_by_name(name: str, role: Role) -> None:
    assert role_of(name) is role
