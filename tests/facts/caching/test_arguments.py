"""What each argument is for when a module is driven step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from mha_lint.facts.caching.arguments import Arguments, arguments_of, tensors
from tests.facts.caching.conftest import CACHED
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Of: TypeAlias = Callable[[Any], Arguments]
PAST = "(torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 6))"


def test_a_sequence_and_a_cache(measured: Measure, arguments: Of) -> None:
    found = arguments(measured(text=CACHED))
    assert {n: axis for n, (_, axis) in found.sequences.items()} == {"x": 1}
    assert (found.caches, found.required, found.length, found.step) == (["past"], [], 5, 1)


@pytest.mark.parametrize(("new", "step"), [(1, 1), (3, 3), (9, 4)])
def test_a_recorded_step_tells_how_wide_steps_are(
    measured: Measure, arguments: Of, new: int, step: int
) -> None:
    found = arguments(measured(text=CACHED, call=f"torch.randn(2, {new}, 24), {PAST}"))
    assert (found.length, found.step) == (new, step)


def test_other_arguments(measured: Measure, arguments: Of) -> None:
    text = CACHED.replace(
        "(self, x, past=None)",
        "(self, x, cos, gain, k_history, cache_position=None, start_pos=0, mask=None,"
        " use_cache=False, past=None)",
    )
    call = "torch.randn(2, 5, 24), torch.randn(5, 6), 2.0, None, mask=torch.ones(2, 5)"
    found = arguments(measured(text=text, call=call))
    assert found.caches == ["k_history", "past"]
    assert found.required == ["k_history"]
    assert found.places == {"cache_position": (None, False), "start_pos": (0, False)}
    assert found.switches == ["use_cache"]
    assert {n: axis for n, (_, axis) in found.tables.items()} == {"cos": 0}
    assert list(found.masks) == ["mask"]
    assert found.fixed == {"gain": 2.0}


def test_the_source_of_an_encoder_is_no_sequence(measured: Measure, arguments: Of) -> None:
    text = (
        PLAIN
        + """

class Both(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.encode, self.decode = MHA(d_model, num_heads), MHA(d_model, num_heads)
        self.cross = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, src, tgt, past=None):
        memory = self.encode(src)
        x = tgt + self.cross(tgt, memory, memory)[0]
        return x + self.decode(x)
"""
    )
    call = "torch.randn(2, 7, 24), torch.randn(2, 5, 24)"
    found = arguments(measured(text=text, build="Both(24, 4)", call=call))
    assert list(found.sequences) == ["tgt"]
    assert list(found.fixed) == ["src"]


def test_cross_attention_has_no_sequence(measured: Measure) -> None:
    text = PLAIN.replace("forward(self, x)", "forward(self, x, memory, past=None)")
    text = text.replace("self.k_proj(x)", "self.k_proj(memory)").replace(
        "view(B, T,", "view(B, -1,"
    )
    text = text.replace("self.v_proj(x)", "self.v_proj(memory)")
    case = measured(text=text, call="torch.randn(2, 5, 24), torch.randn(2, 7, 24)")
    assert arguments_of(case.subject, case.bench) is None


def test_tensors_in_order() -> None:
    import torch

    a, b, c = torch.zeros(1), torch.ones(1), torch.full((1,), 2.0)
    assert [float(t) for t in tensors({"k": (a, [b]), "n": 3, "v": c})] == [0, 1, 2]
