"""Whether later positions reach earlier ones: by which fault, at which line, with which proof."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.causality import measure_causality
from mha_lint.facts.contract import contract_of
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

SOFTMAX = "        weights = scores.softmax(dim=-1)\n"
ROOT = "        scores = scores / math.sqrt(self.d_k)\n"


def masked(later: str) -> tuple[str, str]:
    """Return the edit that hides `later`, a mask over (T, T), on lines of its own."""
    text = f"        later = {later}\n"
    return (
        SOFTMAX,
        f'{text}        scores = scores.masked_fill(later, float("-inf"))\n{SOFTMAX}',
    )


CAUSAL = masked("torch.ones(T, T).triu(1).bool()")


def test_a_causal_site(measured: Measure, known: Known) -> None:
    case = measured(CAUSAL)
    found = known(case.facts.causality)
    assert (found.patterns, found.causal, found.leak, found.faults) == (("causal",), True, None, ())
    assert case.facts.causality.evidence == (  # type: ignore[union-attr]
        "no position that was moved changes an earlier output"
    )


def test_an_open_site_is_not_causal_and_no_fault(measured: Measure, known: Known) -> None:
    case = measured()
    found = known(case.facts.causality)
    assert (found.patterns, found.causal, found.faults) == (("open",), False, ())
    leak = found.leak
    assert (leak.entry, leak.reached, leak.shift) == ("x", "output", 0)
    assert leak.earlier < leak.later
    assert leak.change > 0.01
    assert case.facts.causality.evidence == str(leak)  # type: ignore[union-attr]


def test_pooled_outputs_have_no_positions(measured: Measure, known: Known) -> None:
    case = measured(
        CAUSAL, ("return self.out_proj(merged)", "return self.out_proj(merged).mean(1)")
    )
    assert known(case.facts.causality).causal is None


def test_cross_attention_is_not_asked(measured: Measure, why: Why) -> None:
    text = PLAIN.replace("forward(self, x)", "forward(self, x, memory)")
    text = text.replace("self.k_proj(x)", "self.k_proj(memory)").replace(
        "view(B, T,", "view(B, -1,"
    )
    text = text.replace("self.v_proj(x)", "self.v_proj(memory)")
    call = "torch.randn(2, 5, 24), torch.randn(2, 7, 24)"
    kind, reason = why(measured(text=text, call=call).facts.causality)
    assert (kind, reason) == (
        "NotApplicable",
        "no site has as many keys as queries from the same positions",
    )


def only(case: Case, known: Known) -> Any:
    (fault,) = known(case.facts.causality).faults
    return fault


@pytest.mark.parametrize(
    ("later", "kind", "detail", "count"),
    [
        ("torch.ones(T, T).triu().bool()", "strict", "NaN", 0),
        ("torch.ones(T, T).triu(2).bool()", "ahead", "", 1),
        ("torch.arange(T)[None] > torch.arange(T)[:, None] + 1", "ahead", "", 1),
    ],
)
def test_a_diagonal_that_is_off_by_one(
    measured: Measure, known: Known, later: str, kind: str, detail: str, count: int
) -> None:
    case = measured(masked(later))
    fault = only(case, known)
    assert (fault.kind, fault.detail, fault.count, fault.meant) == (kind, detail, count, "")
    assert fault.span.line == case.line("later = ")
    if kind == "ahead":
        assert (fault.leak.later - fault.leak.earlier, fault.leak.change > 0.01) == (1, True)


def test_a_strict_mask_whose_fill_is_finite_shows_everything_to_the_first(
    measured: Measure, known: Known
) -> None:
    edit = (SOFTMAX, f"        scores = scores + torch.ones(T, T).triu() * -1e9\n{SOFTMAX}")
    fault = only(measured(edit), known)
    assert (fault.kind, fault.detail, fault.leak.earlier) == ("strict", "everything", 0)


def test_an_empty_first_row_that_is_taken_care_of(measured: Measure, known: Known) -> None:
    careful = (
        "        context = weights @ v\n",
        "        context = weights.nan_to_num() @ v\n",
    )
    case = measured(masked("torch.ones(T, T).triu().bool()"), careful)
    assert known(case.facts.causality).faults == ()


def test_a_word_for_looking_ahead(measured: Measure, known: Known) -> None:
    ahead = masked("torch.ones(T, T).triu(1 + self.right_context).bool()")
    case = measured(ahead, ("self.h = num_heads", "self.h, self.right_context = num_heads, 1"))
    assert known(case.facts.causality).patterns == ("ahead",)
    assert known(case.facts.causality).faults == ()


def test_a_triangle_that_is_lost(measured: Measure, known: Known) -> None:
    far = "torch.ones(T, T).tril(-3).bool()"
    case = measured(masked(f"torch.ones(T, T).triu(1).bool() & {far}"))
    fault = only(case, known)
    assert (fault.kind, case.marked(fault.span)) == (
        "lost",
        f"torch.ones(T, T).triu(1).bool() & {far}",
    )


@pytest.mark.parametrize(
    ("edit", "line", "detail"),
    [
        (("        B, T, C = x.shape\n", "        x = x - x.mean(1, keepdim=True)\n"), "x.mean(1", "queries"),
        (("        B, T, C = x.shape\n", "        x = F.avg_pool1d(x.mT, 3, 1, 1).mT\n"), "avg_pool1d", "queries"),
        (("        scores = q @", "        k = k.softmax(dim=2)\n        scores = q @"), "k.softmax", "keys"),
        (("        return self.out_proj(merged)", "        return merged - merged.amax(1, keepdim=True)"),
         "merged.amax", "output"),
    ],
)  # fmt: skip
def test_positions_that_are_mixed_beside_attention(
    measured: Measure, known: Known, edit: tuple[str, str], line: str, detail: str
) -> None:
    old, new = edit
    if "x.shape" in old:
        new += old
    case = measured(CAUSAL, (old, new))
    fault = only(case, known)
    assert (fault.kind, fault.detail, fault.span.line) == ("mixing", detail, case.line(line))


@pytest.mark.parametrize(
    "front",
    [
        "x = x - x.cumsum(1) / torch.arange(1, x.size(1) + 1).view(1, -1, 1)",
        "x = x + F.pad(x, (0, 0, 1, -1))",
        "x = F.avg_pool1d(F.pad(x.mT, (2, 0)), 3, 1).mT",
        "x = x.flip(1).flip(1)",
    ],
)
def test_mixing_of_what_came_before(measured: Measure, known: Known, front: str) -> None:
    shape = "        B, T, C = x.shape\n"
    case = measured(CAUSAL, (shape, f"        {front}\n{shape}"))
    assert known(case.facts.causality).faults == ()
    assert known(case.facts.causality).causal is True


STACK = (
    PLAIN.replace("forward(self, x)", "forward(self, x, later=None)").replace(
        SOFTMAX,
        "        if later is not None:\n"
        '            scores = scores.masked_fill(later, float("-inf"))\n' + SOFTMAX,
    )
    + """

class Stack(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.first, self.second = MHA(d_model, num_heads), MHA(d_model, num_heads)

    def forward(self, x):
        later = torch.ones(x.size(1), x.size(1)).triu(1).bool()
        x = x + self.first(x, later)
        return x + self.second(x{second})
"""
)


def test_one_layer_without_the_mask(measured: Measure, known: Known) -> None:
    case = measured(text=STACK.format(second=""), build="Stack(24, 4)")
    fault = only(case, known)
    assert (fault.kind, fault.site) == ("unmasked", 1)
    assert fault.span.line == case.line("self.second(x)")
    assert fault.label.line == case.line("self.first(x, later)")
    right = measured(text=STACK.format(second=", later"), build="Stack(24, 4)")
    assert known(right.facts.causality).faults == ()


def test_names_alone_are_weak(measured: Measure, known: Known) -> None:
    text = PLAIN.replace("class MHA", "class CausalMHA")
    case = measured(text=text, build="CausalMHA(24, 4)")
    fault = only(case, known)
    assert (fault.kind, fault.meant, fault.stated) == ("open", "class name CausalMHA", False)
    assert case.marked(fault.span) == "scores.softmax(dim=-1)"


@pytest.mark.parametrize("argument", ["mask=None", "attn_mask=None"])
def test_a_caller_may_pass_the_mask(measured: Measure, known: Known, argument: str) -> None:
    text = PLAIN.replace("class MHA", "class CausalMHA")
    text = text.replace("forward(self, x)", f"forward(self, x, {argument})")
    case = measured(text=text, build="CausalMHA(24, 4)")
    assert known(case.facts.causality).faults == ()


def test_both_directions_are_a_design(measured: Measure, known: Known) -> None:
    both = "torch.stack([torch.ones(T, T).triu(1), torch.ones(T, T).tril(-1)] * 2).bool()"
    case = measured(masked(both))
    assert known(case.facts.causality).patterns == ("other",)
    assert known(case.facts.causality).faults == ()


def test_a_latent_of_the_same_sequence(measured: Measure, known: Known) -> None:
    front = (
        "        B, T, C = x.shape\n",
        "        B, T, C = x.shape\n        x = x + self.encoder(x)[:, -1:]\n",
    )
    layer = (
        "        self.h = num_heads\n",
        "        self.h = num_heads\n        self.encoder = nn.Linear(d_model, d_model)\n",
    )
    case = measured(CAUSAL, front, layer)
    assert known(case.facts.causality).faults == ()


def test_a_second_input_may_be_known_ahead(measured: Measure, known: Known) -> None:
    front = (
        "        B, T, C = x.shape\n",
        "        B, T, C = x.shape\n        x = x + F.avg_pool1d(mel.mT, 3, 1, 1).mT\n",
    )
    call = ("def forward(self, x)", "def forward(self, x, mel)")
    case = measured(CAUSAL, front, call, call="torch.randn(2, 5, 24), torch.randn(2, 5, 24)")
    assert known(case.facts.causality).faults == ()


@pytest.mark.parametrize(
    ("expect", "kinds"),
    [((), ["ahead"]), (("bidirectional",), []), (("causal=no",), []), (("causal",), ["ahead"])],
)
def test_what_the_user_states(
    measured: Measure, known: Known, expect: tuple[str, ...], kinds: list[str]
) -> None:
    case = measured(masked("torch.ones(T, T).triu(2).bool()"))
    subject = dataclasses.replace(
        case.subject, spec=dataclasses.replace(case.subject.spec, expect=expect)
    )
    fact = measure_causality(subject, case.bench, contract_of(subject))
    assert [f.kind for f in known(fact).faults] == kinds


def test_a_stated_contract_needs_no_name(measured: Measure, known: Known) -> None:
    case = measured()
    spec = dataclasses.replace(case.subject.spec, expect=("causal",))
    subject = dataclasses.replace(case.subject, spec=spec)
    (fault,) = known(measure_causality(subject, case.bench, contract_of(subject))).faults
    assert (fault.kind, fault.stated, fault.meant) == ("open", True, "it is expected to be")


FRAMES = """
class CausalFrames(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.qkv = nn.Conv3d(channels, 3 * channels, 1)
        self.out = nn.Conv3d(channels, channels, 1)

    def forward(self, x):
        q, k, v = self.qkv(x).permute(0, 2, 3, 4, 1).flatten(2, 3).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.unflatten(2, x.shape[-2:]).permute(0, 4, 1, 2, 3))
"""


def test_a_name_may_mean_the_frames_that_attention_leaves_apart(
    measured: Measure, known: Known
) -> None:
    video = {"build": "CausalFrames(6)", "call": "torch.randn(2, 6, 3, 4, 5)"}
    assert known(measured(text=FRAMES, **video).facts.causality).faults == ()
    every = (
        (".flatten(2, 3).chunk", ".flatten(1, 3).chunk"),
        ("unflatten(2, x.shape[-2:])", "unflatten(1, x.shape[-3:])"),
    )
    (fault,) = known(measured(*every, text=FRAMES, **video).facts.causality).faults
    assert (fault.kind, fault.meant) == ("open", "class name CausalFrames")
