"""Triangles, and lines, that only a second call, a docstring or a constructor tells of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.causal.directions import _is_asked_for
from mha_lint.model.facts import NotApplicable

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

CROSS = """\
class Ask(nn.Module):
    def __init__(self, width, heads, ordered=False, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, y):
        b, t, c = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = (z.view(b, y.size(1), self.heads, -1).transpose(1, 2) for z in self.kv(y).chunk(2, -1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(z.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.own = Ask(width, heads, causal=True)
        self.other = Ask(width, heads, causal=True)

    def forward(self, x, picture):
        x = x + self.own(x, x)
        return x + self.other(x, picture)
"""
SAME = "torch.randn(2, 6, 24), torch.randn(2, 6, 24)"
TAGGER = """\
class Tagger(nn.Module):
    \"\"\"Reads a sentence in both directions.\"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.a = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, lengths):
        t = x.size(1)
        i = torch.arange(t)
        pad = i >= lengths[:, None]
        subsequent = i[None, :] > i[:, None]
        hidden = pad[:, None, :] | subsequent
        return self.a(x, x, x, attn_mask=hidden.repeat_interleave(self.a.num_heads, 0))[0]
"""
LENGTHS = "torch.randn(2, 6, 24), torch.tensor([6, 4])"
CAPPED = """\
def bounded(s):
    return 8 * torch.tanh(s / 8)


class Capped(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        s = q @ k.mT / q.size(-1) ** 0.5
        s = s.masked_fill(torch.ones(t, t).triu(1).bool(), -1e9)
        s = bounded(s)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))
"""


def fit(case: Case, number: int = 0) -> Any:
    return case.facts.sites[number].mask_fit.value


def test_a_longer_source_shows_that_the_two_are_not_in_step(measured: Measure) -> None:
    case = measured(text=CROSS, build="Layer(24, 4)", call=SAME)
    assert case.facts.sites[0].mask_fit.value.causal_cross is None
    found = fit(case, 1).causal_cross
    assert (found.certain, found.t_q, found.t_k) == (True, 6, 6)
    assert found.why.startswith("with 8 keys of picture the 6 queries still start at key 0")
    assert case.marked(found.span) == "self.other = Ask(width, heads, causal=True)"


def test_the_flag_of_one_layer_is_off(measured: Measure) -> None:
    edit = ("self.other = Ask(width, heads, causal=True)", "self.other = Ask(width, heads)")
    case = measured(edit, text=CROSS, build="Layer(24, 4)", call=SAME)
    assert case.facts.sites[1].mask_fit == NotApplicable("nothing stands beside the scores")


def test_two_that_run_in_step(measured: Measure) -> None:
    said = ("class Layer(nn.Module):", 'class Layer(nn.Module):\n    """Both run in step."""\n')
    case = measured(said, text=CROSS, build="Layer(24, 4)", call=SAME)
    assert fit(case, 1).causal_cross is None


def test_a_docstring_says_both_directions(measured: Measure) -> None:
    case = measured(text=TAGGER, build="Tagger(24, 4)", call=LENGTHS)
    found = fit(case).unwanted
    assert (found.certain, found.hidden) == (False, 15)
    assert found.why == "its docstring says “both directions”"
    assert found.span.line == case.line("hidden = pad[:, None, :] | subsequent")


@pytest.mark.parametrize(
    "said", ["in both directions, or causally", "word by word", "in both directions, as a stream"]
)
def test_a_docstring_that_says_less(measured: Measure, said: str) -> None:
    case = measured(("in both directions", said), text=TAGGER, build="Tagger(24, 4)", call=LENGTHS)
    assert fit(case).unwanted is None


def test_a_stream_each_way_sees_both(measured: Measure) -> None:
    edits = (
        (
            "self.a = nn",
            "self.b = nn.MultiheadAttention(width, heads, batch_first=True)\n        self.a = nn",
        ),
        ("def forward(self, x, lengths):", "def forward(self, x):"),
        ("        pad = i >= lengths[:, None]\n", ""),
        ("hidden = pad[:, None, :] | subsequent", "hidden = subsequent"),
        (
            "return self.a(x, x, x, attn_mask=hidden.repeat_interleave(self.a.num_heads, 0))[0]",
            "y = x.flip(1)\n"
            "        return self.a(x, x, x, attn_mask=hidden)[0]"
            " + self.b(y, y, y, attn_mask=hidden)[0].flip(1)",
        ),
    )
    case = measured(*edits, text=TAGGER, build="Tagger(24, 4)", call="torch.randn(2, 6, 24)")
    assert [fit(case, n).unwanted for n in (0, 1)] == [None, None]


def test_a_cap_is_shown_where_it_is_called(measured: Measure) -> None:
    case = measured(text=CAPPED, build="Capped(24, 4)")
    (squashed,) = case.site.masking.value.squashed
    assert case.marked(squashed.span) == "bounded(s)"
    assert case.marked(squashed.masked_at).startswith("s.masked_fill")


COUNTED = CROSS.replace("def forward(self, x, y):", "def forward(self, x, y, seen):").replace(
    "is_causal=self.causal", "attn_mask=(torch.arange(y.size(1)) < seen[..., None])[:, None]"
)
SEEN = "torch.randn(2, 6, 24), torch.randn(2, 6, 24), torch.arange(1, 7).expand(2, 6)"


def test_an_argument_says_how_many_keys_each_query_sees(measured: Measure) -> None:
    case = measured(text=COUNTED, build="Ask(24, 4)", call=SEEN)
    (site,) = case.bench.sites
    assert _is_asked_for(case.bench, site)
    drawn = measured(text=CROSS, build="Ask(24, 4, causal=True)", call=SAME)
    assert not _is_asked_for(drawn.bench, drawn.bench.sites[0])
