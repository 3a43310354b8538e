"""Replays: precision, substitution, randomness, and what is recomputed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mha_lint.capture import Recording, Replay, random_inputs, random_parameters, record

Recorded = Callable[..., Recording]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))
        self.table = nn.Parameter(torch.randn(5, 6), requires_grad=False)

    def forward(self, x: Any) -> Any:
        x = x + self.table
        scores = self.q(x) @ self.k(x).mT / 6**0.5
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), torch.finfo(x.dtype).min)
        return scores.float().softmax(-1).to(x.dtype) @ self.v(x)


def recording_of(dtype: torch.dtype = torch.float32) -> Recording:
    return record(Attention().to(dtype), (torch.randn(2, 5, 6, dtype=dtype),), {})


def named(recording: Recording, op: str, place: int = 0) -> Any:
    return [n for n in recording.graph.nodes if n.meta["op"] == op][place]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_everything_is_float64(dtype: torch.dtype) -> None:
    recording = recording_of(dtype)
    replay = Replay(recording)
    for node in recording.graph.nodes:
        if node.op != "output":
            value = replay.base(node)
            assert value.dtype in (torch.float64, torch.bool, torch.int64), node
    module = Attention().double()
    module.load_state_dict(recording.module.state_dict())  # type: ignore[union-attr]
    want = module(recording.inputs[0].double())
    got = replay.base(recording.outputs[0])
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    # The caller's default is as it was.
    assert torch.get_default_dtype() == torch.float32


def test_float64_agrees_with_the_module_to_the_last_bits() -> None:
    module = Attention()
    recording = record(module, (torch.randn(2, 5, 6),), {})
    inputs, parameters = random_inputs(recording, 7), random_parameters(recording, 7)
    replay = Replay(recording, inputs=inputs, parameters=parameters)
    double = Attention().double()
    double.load_state_dict({**module.state_dict(), **parameters})
    # .float() in the module itself would lose what the replay keeps
    x = inputs[0].double() + double.table
    scores = double.q(x) @ double.k(x).mT / 6**0.5
    scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -3e38)
    want = scores.softmax(-1) @ double.v(x)
    torch.testing.assert_close(replay.base(recording.outputs[0]), want, rtol=1e-12, atol=1e-12)


def test_complex_follows(recorded: Recorded) -> None:
    def turn(x: Any) -> Any:
        z = torch.view_as_complex(x.reshape(3, 2, 2)) * torch.tensor([1j, 2.0], dtype=torch.cfloat)
        return torch.view_as_real(z).flatten(1)

    recording = recorded(turn, torch.randn(3, 4))
    replay = Replay(recording)
    assert replay.base(named(recording, "mul")).dtype == torch.complex128
    assert replay.base(recording.outputs[0]).dtype == torch.float64


@pytest.mark.parametrize(
    "cast",
    [
        lambda x: x.half().float(),
        lambda x: x.to(torch.float16),
        lambda x: x.to(torch.bfloat16).to(x),
        lambda x: x.type(torch.float16),
        lambda x: x.type("torch.HalfTensor"),
        lambda x: x.type_as(torch.zeros(1, dtype=torch.float16)),
        lambda x: x * torch.full((1,), 0.1, dtype=torch.float16),
        lambda x: x.to("cpu", torch.float16),
        lambda x: F.softmax(x, -1, dtype=torch.float16).log(),
        lambda x: x + torch.arange(0, 1, 0.25),
    ],
)
def test_casts_follow(cast: Callable[[Any], Any]) -> None:
    recording = record(cast, (torch.randn(3, 4),), {})
    assert Replay(recording).base(recording.outputs[0]).dtype == torch.float64


def test_substitution_recomputes_what_lies_below() -> None:
    recording = recording_of()
    scores, weights = named(recording, "div"), named(recording, "softmax")
    replay = Replay(recording)
    before = replay.base(weights)
    got, context = replay.run([weights, recording.outputs[0]], {scores: torch.zeros(2, 5, 5)})
    want = torch.ones(5, 5).tril().div(torch.arange(1, 6)[:, None]).double()
    torch.testing.assert_close(got, want.expand(2, 5, 5))
    values = replay.base(recording.outputs[0].args[1])  # type: ignore[arg-type]
    torch.testing.assert_close(context, got @ values)
    assert replay.base(weights) is before  # the base run is untouched


def test_substitution_stops_at_other_substitutes_and_keeps_the_rest() -> None:
    recording = recording_of()
    scores, weights, out = (
        named(recording, "div"),
        named(recording, "softmax"),
        recording.outputs[0],
    )
    replay = Replay(recording)
    fixed = torch.eye(5).expand(2, 5, 5)
    (got,) = replay.run([out], {scores: torch.full((2, 5, 5), torch.nan), weights: fixed})
    torch.testing.assert_close(got, replay.base(out.args[1]))  # type: ignore[arg-type]
    (same,) = replay.run([named(recording, "linear", 2)], {scores: torch.zeros(2, 5, 5)})
    assert same is replay.base(named(recording, "linear", 2))
    (given,) = replay.run([scores], {scores: torch.zeros(2, 5, 5)})
    assert not given.any()


def test_inputs_parameters_and_items_can_be_substituted(recorded: Recorded) -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(4, 12, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            return q * 2 + k * 3 + v * 5

    recording = recorded(Split(), torch.randn(3, 4))
    out, replay = recording.outputs[0], Replay(recording)
    k = [n for n in recording.graph.nodes if n.meta["op"] == "getitem"][1]
    (got,) = replay.run([out], {k: torch.ones(3, 4)})
    torch.testing.assert_close(got, replay.base(out) - 3 * replay.base(k) + 3)
    (zero,) = replay.run([out], {recording.placeholders[0]: torch.zeros(3, 4)})
    assert not zero.any()
    (zero,) = replay.run([out], {recording.parameters["qkv.weight"]: torch.zeros(12, 4)})
    assert not zero.any()


def test_strides_of_substitutes_do_not_matter(recorded: Recorded) -> None:
    def forward(x: Any) -> Any:
        y = x.sin().view(3, 2, 4)
        z = torch.view_as_complex(y.view(3, 4, 2))
        return torch.view_as_real(z).view(12, 2).as_strided((6, 2), (4, 1))

    recording = recorded(forward, torch.randn(3, 8))
    sin, replay = named(recording, "sin"), Replay(recording)
    value = torch.randn(3, 8, dtype=torch.float64)
    outputs = [
        replay.run(recording.outputs, {sin: v})[0]
        for v in (value, value.T.contiguous().T, torch.stack([value, value], -1)[..., 0])
    ]
    torch.testing.assert_close(outputs[0], value.reshape(6, 4)[:, :2])
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    expanded = torch.randn(1, 8, dtype=torch.float64).expand(3, 8)
    replay.run(recording.outputs, {sin: expanded})


def test_dropout_repeats_and_depends_on_the_seed(recorded: Recorded) -> None:
    def forward(x: Any) -> Any:
        return F.dropout(x, 0.5, True) + torch.rand(8) + F.dropout(x, 0.5, True)

    recording = recorded(forward, torch.ones(64, 8))
    first, second = (n for n in recording.graph.nodes if n.meta["op"] == "dropout")
    torch.manual_seed(5)
    one = Replay(recording)
    state = torch.get_rng_state()
    whole = one.base(recording.outputs[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(one.base(first), one.base(second))
    (again,) = one.run([second], {recording.placeholders[0]: torch.ones(64, 8)})
    assert torch.equal(again, one.base(second))
    assert torch.equal(Replay(recording).base(recording.outputs[0]), whole)
    assert not torch.equal(Replay(recording, seed=1000).base(recording.outputs[0]), whole)


def test_random_parameters_spare_the_frozen() -> None:
    recording = recording_of()
    new = random_parameters(recording, 0)
    assert set(new) == {f"{n}.{p}" for n in "qkv" for p in ("weight", "bias")}
    assert new["q.weight"].square().mean().sqrt() == pytest.approx(6**-0.5, rel=0.5)
    same, other = random_parameters(recording, 0), random_parameters(recording, 1)
    assert torch.equal(same["k.bias"], new["k.bias"])
    assert not torch.equal(other["k.bias"], new["k.bias"])


def test_random_inputs_keep_masks_and_permute_integers(recorded: Recorded) -> None:
    def forward(x: Any, ids: Any, keep: Any, bias: Any, share: Any) -> Any:
        y = (x * keep + bias).sum(-1) * ids
        return y + share.log().sum()

    bias = torch.tensor([0.0, -torch.inf, 0.0])
    given = (10 * torch.randn(4, 3), torch.arange(4), torch.ones(4, 3).bool(), bias, torch.rand(5))
    recording = recorded(forward, *given)
    x, ids, keep, same, share = random_inputs(recording, 3)
    assert not torch.equal(x, given[0])
    assert 3 < x.std() < 30
    assert sorted(ids.tolist()) == [0, 1, 2, 3]
    assert torch.equal(keep, given[2])
    assert torch.equal(same, bias)
    assert (share >= 0).all()


def test_wrong_number_of_inputs() -> None:
    with pytest.raises(ValueError, match="1 inputs are needed, not 0"):
        Replay(recording_of(), inputs=[])


def test_grouped_matmul_in_float64() -> None:
    grouped = getattr(torch, "_grouped_mm", None)
    if grouped is None:
        pytest.skip("this torch has no grouped matmul")
    a, b = torch.randn(6, 16), torch.randn(2, 16, 16)
    ends = torch.tensor([2, 6], dtype=torch.int32)
    try:
        grouped(a, b, offs=ends)
    except RuntimeError:
        pytest.skip("not on this device")
    recording = record(lambda a, b: grouped(a, b, offs=ends), (a, b), {})
    want = torch.cat([a[:2].double() @ b[0].double(), a[2:].double() @ b[1].double()])
    torch.testing.assert_close(Replay(recording).base(recording.outputs[0]), want)


class Blocks(nn.Module):
    """Draws its sparse layout from a generator of its own, anew in each call."""

    def forward(self, x: Any) -> Any:
        generator = torch.Generator().manual_seed(3)
        keep = torch.zeros(6, 6, dtype=torch.bool)
        keep[0, torch.randperm(6, generator=generator)[:3]] = True
        noise = torch.randn(6, generator=generator, dtype=x.dtype)
        return (x @ x.mT).masked_fill(keep, 0) + noise


def test_what_a_generator_of_the_user_draws_is_a_constant() -> None:
    recording = record(Blocks(), (torch.randn(2, 6, 4),), {})
    assert recording.faithful.ok, recording.faithful
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    (out,) = recording.outputs
    replayed = Replay(recording, inputs=[x]).base(out)
    noise = torch.Generator().manual_seed(3)
    torch.randperm(6, generator=noise)
    expected = Blocks()(x) - torch.randn(6, generator=noise, dtype=torch.float64)
    drawn = recording.values[named(recording, "randn")].double()
    assert torch.allclose(replayed, expected + drawn, atol=1e-12)


def test_casts_to_eight_bits_follow_the_precision() -> None:
    def forward(x: Any) -> Any:
        return x.to(torch.float8_e4m3fn).to(x.dtype) * 2

    x = torch.randn(3, 5)
    recording = record(forward, (x,), {})
    (out,) = recording.outputs
    assert torch.equal(Replay(recording).base(out), x.double() * 2)
    native = Replay(recording, dtype=None).base(out)
    assert torch.equal(native, forward(x)) and not torch.equal(native, x * 2)


def test_autocast_of_another_device_is_none_here() -> None:
    """On a machine without a GPU it is switched off, with a warning."""

    def forward(x: Any, y: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autocast("cuda", dtype=torch.float16):
                return x @ y

    recording = record(forward, (torch.randn(3, 3), torch.randn(3, 3)), {})
    assert recording.faithful.ok
    assert not any("autocast" in n.meta for n in recording.graph.nodes)
