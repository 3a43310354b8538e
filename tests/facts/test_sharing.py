"""One weight behind two operands, and what tells the two apart all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

ONE = """\
class One(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.base = nn.Linear(width, inner)
        self.value = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.randn(2, inner))
        self.norm = nn.LayerNorm(inner)
        self.pool = nn.AvgPool1d(2)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        z = self.base(x)
        q, k = z, z
        weights = torch.softmax(q @ k.transpose(1, 2) / z.shape[-1] ** 0.5, dim=-1)
        return self.out(weights @ self.value(x))
"""
CALL = {"build": "One(24, 6)", "call": "torch.randn(2, 8, 24)"}


@pytest.mark.parametrize(
    ("operands", "same"),
    [
        ("z, z", ("qk",)),
        ("z * 2, z / 3", ("qk",)),
        ("z * self.gain[0], z", ()),
        ("z * self.gain[0], z * self.gain[1]", ()),
        ("z * self.gain[0], z * self.gain[0]", ("qk",)),
        ("self.norm(z), z", ()),
    ],
)
def test_gains_of_their_own(
    operands: str, same: tuple[str, ...], measured: Measure, known: Known
) -> None:
    case = measured(("q, k = z, z", f"q, k = {operands}"), text=ONE, **CALL)
    assert known(case.site.roles).same == same


def test_positions_that_are_pooled_on_one_side(measured: Measure, known: Known) -> None:
    pooled = "q, k = z, self.pool(z.transpose(1, 2)).transpose(1, 2)"
    values = ("weights @ self.value(x)", "weights @ self.value(x)[:, ::2]")
    assert known(measured(("q, k = z, z", pooled), values, text=ONE, **CALL).site.roles).same == ()


LATENT = """\
class Latent(nn.Module):
    def __init__(self, width, heads, latent):
        super().__init__()
        self.h, self.d = heads, width // heads
        self.down, self.query = nn.Linear(width, latent), nn.Linear(width, width)
        self.up_k = nn.Parameter(torch.randn(heads, self.d, latent))
        self.up_v = nn.Parameter(torch.randn(heads, self.d, latent))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        c = self.down(x)
        q = self.query(x).unflatten(-1, (self.h, self.d))
        q = torch.einsum("bthd,hdc->bhtc", q, self.up_k)
        w = torch.softmax(torch.einsum("bhtc,bsc->bhts", q, c) * self.d**-0.5, -1)
        y = torch.einsum("bhts,bsc->bhtc", w, c)
        return self.out(torch.einsum("bhtc,hdc->bthd", y, self.up_v).flatten(2))
"""


def test_a_map_per_head_behind_the_context(measured: Measure, known: Known) -> None:
    case = measured(text=LATENT, build="Latent(40, 4, 12)", call="torch.randn(2, 8, 40)")
    assert known(case.site.roles).same == ()
    plain = (
        'return self.out(torch.einsum("bhtc,hdc->bthd", y, self.up_v).flatten(2))',
        "return self.out(y.transpose(1, 2).flatten(2))",
    )
    widths = ("self.out = nn.Linear(width, width)", "self.out = nn.Linear(heads * latent, width)")
    case = measured(
        plain, widths, text=LATENT, build="Latent(40, 4, 12)", call="torch.randn(2, 8, 40)"
    )
    assert known(case.site.roles).same == ("kv",)


STORED = """\
class Stored(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.keep, self.read = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, y):
        state, k = self.ask(x), self.keep(y)
        state = torch.softmax(state @ k.transpose(1, 2) / k.shape[-1] ** 0.5, dim=-1) @ k
        weights = torch.softmax(state @ k.transpose(1, 2) / k.shape[-1] ** 0.5, dim=-1)
        return weights @ self.read(y)
"""


def test_a_context_that_asks_the_same_keys_again(measured: Measure, known: Known) -> None:
    call = "torch.randn(2, 5, 24), torch.randn(2, 9, 24)"
    first, _ = measured(text=STORED, build="Stored(24)", call=call).facts.sites
    assert known(first.roles).same == ()


BOTH = """\
class Both(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, y):
        a, b = self.base(x), self.base(y)
        by = a.shape[-1] ** -0.5
        of_x = torch.softmax(a @ b.mT * by, dim=-1) @ self.value(y)
        of_y = torch.softmax(b @ a.mT * by, dim=-1) @ self.value(x)
        return of_x, of_y
"""


@pytest.mark.parametrize(
    ("again", "same"),
    [("b @ a.mT", ()), ("b @ self.base(x).mT", ("qk",)), ("b @ b.mT", ("qk",))],
)
def test_tensors_that_change_places(
    again: str, same: tuple[str, ...], measured: Measure, known: Known
) -> None:
    call = {"build": "Both(24)", "call": "torch.randn(2, 5, 24), torch.randn(2, 5, 24)"}
    case = measured(("b @ a.mT", again), text=BOTH, **call)
    assert [known(site.roles).same for site in case.facts.sites] == [same, same]


ONE_LATENT = """\
class Latent(nn.Module):
    def __init__(self, width, heads, size):
        super().__init__()
        self.h, self.size = heads, size
        self.ask, self.latent = nn.Linear(width, heads * size), nn.Linear(width, size * SHARES)
        self.out = nn.Linear(heads * size, width)
        IDLE

    def forward(self, x):
        q = self.ask(x).unflatten(-1, (self.h, self.size)).transpose(1, 2)
        kv = self.latent(x).unflatten(-1, (SHARES, self.size)).transpose(1, 2)
        weights = torch.softmax(q @ kv.mT / self.size**0.5, dim=-1)
        return self.out((weights @ kv).transpose(1, 2).flatten(2))
"""


def latent(measured: Measure, *, shares: str = "1", idle: str = "pass", heads: int = 4) -> Any:
    text = ONE_LATENT.replace("SHARES", shares).replace("IDLE", idle)
    return measured(text=text, build=f"Latent(24, {heads}, 6)", call="torch.randn(2, 5, 24)").site


def test_one_head_that_serves_all_may_be_compared_and_summed(
    measured: Measure, known: Known
) -> None:
    assert known(latent(measured).roles).same == ()
    assert known(latent(measured, shares="4").roles).same == ("kv",)
    assert known(latent(measured, heads=1).roles).same == ("kv",)


def test_with_a_projection_left_over_it_is_no_design(measured: Measure, known: Known) -> None:
    found = known(latent(measured, idle="self.value = nn.Linear(width, size)").roles)
    assert (found.same, found.value_is, found.unused) == (("kv",), "k", ("value.weight",))


SKETCH = """\
class Sketched(nn.Module):
    def __init__(self, width, heads, size):
        super().__init__()
        self.h, self.size = heads, size
        self.ask, self.latent = nn.Linear(width, heads * size), nn.Linear(width, size)
        self.sketch = nn.Linear(width, size)
        self.out = nn.Linear(heads * size, width)

    def forward(self, x):
        B, T, C = x.shape
        q = self.ask(x).unflatten(-1, (self.h, self.size)).transpose(1, 2)
        far = self.sketch(x)[:, : T // 16 * 16]
        far = far.unflatten(1, (-1, 16)).mean(2) if T > 15 else x.new_zeros(B, 0, self.size)
        kv = torch.cat([self.latent(x), far], dim=1)[:, None]
        weights = torch.softmax(q @ kv.mT / self.size**0.5, dim=-1)
        return self.out((weights @ kv).transpose(1, 2).flatten(2))
"""


def test_a_call_too_short_for_a_projection_leaves_it_idle(measured: Measure, known: Known) -> None:
    short = {"text": SKETCH, "build": "Sketched(24, 4, 6)"}
    case = measured(**short, call="torch.randn(2, 5, 24)")
    assert (known(case.site.roles).unused, known(case.site.roles).same) == ((), ())
    found = known(measured(("T // 16 * 16", "T"), **short, call="torch.randn(2, 5, 24)").site.roles)
    assert found.unused == ("sketch.weight",)
