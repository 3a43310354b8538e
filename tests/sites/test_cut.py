"""One part of a recording without weights, as a recording that can be measured."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mha_lint.capture import Recording, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import measure_dims
from mha_lint.facts.output import output_path
from mha_lint.facts.scale import measure_scale
from mha_lint.model.facts import Known
from mha_lint.sites.cut import NARROW, cut
from mha_lint.sites.parts import parts_of
from mha_lint.targets.large import WithoutLarge


class Grouped(nn.Module):
    """8 query heads and 2 key/value heads of 128 over a width of 1024."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.q, self.k = nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 256, bias=False)
        self.v, self.o = nn.Linear(1024, 256, bias=False), nn.Linear(1024, 1024, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (-1, 128)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x))
        )
        k, v = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)
        weights = (q @ k.mT * self.factor + mask).softmax(-1)
        joined: Tensor = self.o((weights @ v).transpose(1, 2).flatten(2))
        return joined


def grouped(factor: float) -> Recording:
    mask = torch.full((7, 7), float("-inf")).triu(1)
    with WithoutLarge() as mode:
        module, x = Grouped(factor), torch.randn(2, 7, 1024)
    with mode:
        x = module.q(x)  # as after a layer: a shape without numbers
        recording = record(module, (x, mask), {}, copy=False, compare=False)
    (part,) = parts_of(recording)
    made = cut(recording, part)
    assert made is not None
    return made


def shapes(made: Recording) -> dict[str, tuple[int, ...]]:
    return {name: tuple(made.values[node].shape) for name, node in made.parameters.items()}


def test_weights_keep_what_heads_are_made_of_and_read_few_channels() -> None:
    assert shapes(grouped(0.1)) == {
        "q.weight": (1024, NARROW),
        "k.weight": (256, NARROW),
        "v.weight": (256, NARROW),
        "o.weight": (NARROW, 1024),
    }


class Turned(nn.Linear):
    """A map that turns its weight itself."""

    def forward(self, input: Tensor) -> Tensor:
        return input @ self.weight.T


def test_a_weight_that_the_code_turns_is_narrowed_as_it_is_read() -> None:
    with WithoutLarge() as mode:
        module, x = Grouped(0.1), torch.randn(2, 7, 1024)
        module.q, module.o = (Turned(1024, 1024, bias=False) for _ in range(2))
    with mode:
        recording = record(
            module, (module.k(x)[..., :1] * x, torch.zeros(7, 7)), {}, copy=False, compare=False
        )
    (part,) = parts_of(recording)
    made = cut(recording, part)
    assert made is not None
    assert shapes(made)["q.weight"] == (NARROW, 1024)
    assert shapes(made)["o.weight"] == (1024, NARROW)
    bench = Bench.of(made)
    assert output_path(bench, bench.sites[0]).map is not None


def test_what_has_values_keeps_them() -> None:
    made = grouped(0.1)
    mask = next(x for x in made.inputs if x.shape == (7, 7))
    assert torch.equal(mask, torch.full((7, 7), float("-inf")).triu(1))
    assert [tuple(x.shape) for x in made.inputs] == [(2, 7, NARROW), (7, 7)]


def test_heads_scale_and_output_are_measured_as_in_the_model() -> None:
    bench = Bench.of(grouped(1024**-0.5))
    (site,) = bench.sites
    dims = measure_dims(bench, site)
    assert isinstance(dims, Known)
    assert (dims.value.num_heads, dims.value.num_kv_heads) == (8, 2)
    assert (dims.value.head_dim, dims.value.v_dim) == (128, 128)
    path = output_path(bench, site)
    assert path.map is not None and path.map.parameters == ("o.weight",)
    scale = measure_scale(bench, site, dims, path, None, {})
    assert isinstance(scale, Known)
    assert abs(scale.value.value - 1024**-0.5) < 1e-9


def test_what_a_weight_that_would_not_fit_gives_is_drawn() -> None:
    class Normed(nn.Module):
        """A norm stands between the input and its map, whose weight can then not be narrowed."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(8192), nn.Linear(8192, 3 * 8192, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            weights = (q @ k.mT / 2048**0.5).softmax(-1)
            context: Tensor = weights @ v
            return context

    with WithoutLarge() as mode:
        module = Normed()
    with mode:
        recording = record(module, (torch.randn(2, 3, 8192),), {}, copy=False, compare=False)
    (part,) = parts_of(recording)
    made = cut(recording, part)
    assert made is not None
    assert shapes(made) == {"norm.weight": (8192,), "norm.bias": (8192,)}
    assert (2, 3, 3 * 8192) in [tuple(x.shape) for x in made.inputs]
    (site,) = Bench.of(made).sites
    dims = measure_dims(Bench.of(made), site)
    assert isinstance(dims, Known) and dims.value.head_dim == 2048


def test_the_numbers_depend_on_the_seed_alone() -> None:
    one, two = grouped(0.1), grouped(0.1)
    for a, b in zip(one.outputs, two.outputs, strict=True):
        assert torch.equal(one.values[a], two.values[b])


def test_the_bias_of_a_map_that_writes_few_channels_is_cut_alike() -> None:
    class Biased(Grouped):
        def __init__(self) -> None:
            super().__init__(0.1)
            self.o = nn.Linear(1024, 1024)

    with WithoutLarge() as mode:
        module, x = Biased(), torch.randn(2, 200, 1024)[:, :7]
    with mode:
        x = module.q(x)
        recording = record(module, (x, torch.zeros(7, 7)), {}, copy=False, compare=False)
    (part,) = parts_of(recording)
    made = cut(recording, part)
    assert made is not None
    assert shapes(made)["o.weight"] == (NARROW, 1024)
    assert shapes(made)["o.bias"] == (NARROW,)
    assert made.widths == {NARROW: 1024}
