"""Tests of mha_lint.targets.infer.chance: what runs at no honest size is not judged at another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_lint.model.report import NotChecked
from mha_lint.targets.subject import Subject

Open = Callable[..., object]

HEADS = """
class Heads(nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
    def split(self, x):
        return x.view(x.size(0), -1, self.heads, self.width).transpose(1, 2)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        {scores}
        w = s.softmax(-1)
        y = {context}
        return self.o({merged})
"""
SCORES = "s = q @ k.transpose(-2, -1) / self.width ** 0.5"
MERGED = "y.transpose(1, 2).reshape(b, t, c)"


def written(
    scores: str = SCORES,
    context: str = "w @ v",
    merged: str = MERGED,
    arguments: str = "dim, heads",
) -> str:
    return HEADS.format(scores=scores, context=context, merged=merged, arguments=arguments)


def line_of(source: str, part: str) -> int:
    """Return the line of `part` in the file that ``opened`` writes."""
    (line,) = [n for n, text in enumerate(source.lstrip("\n").splitlines(), 5) if part in text]
    return line


def refused(outcome: object) -> NotChecked:
    assert isinstance(outcome, NotChecked), outcome
    return outcome


def test_the_usual_code_is_built_with_several_heads(opened: Open) -> None:
    subject = opened(written(), "Heads")
    assert isinstance(subject, Subject)
    assert (subject.build, subject.call) == ("Heads(dim=24, heads=4)", "torch.randn(3, 7, 24)")


@pytest.mark.parametrize("arguments", ["dim, heads", "dim=64, heads=4", "dim=48, heads=6"])
@pytest.mark.parametrize(
    ("merged", "method"),
    [
        ("y.transpose(1, 2).view(b, t, c)", "transpose"),
        ("y.permute(0, 2, 1, 3).view(b, -1, c)", "permute"),
        ("y.swapaxes(1, 2).view((b, t, c))", "swapaxes"),
    ],
)
def test_a_view_that_needs_one_head_is_the_answer(
    opened: Open, merged: str, method: str, arguments: str
) -> None:
    source = written(merged=merged, arguments=arguments)
    outcome = refused(opened(source, "Heads"))
    line = line_of(source, ".view(b") if ".view(b" in merged else line_of(source, ".view((b")
    assert f" failed at line {line}: view(" in outcome.reason
    assert f") after {method} needs contiguous memory" in outcome.reason
    assert "heads=1" not in outcome.reason
    assert outcome.hint.startswith("use reshape(")
    assert outcome.problem is None


def test_the_stated_call_says_the_same(opened: Open) -> None:
    source = written(merged="y.transpose(1, 2).view(b, t, c)")
    outcome = refused(opened(source, "Heads", build="Heads(32, 4)", call="torch.randn(2, 10, 32)"))
    assert outcome.reason == (
        "calling Heads(32, 4) with (torch.randn(2, 10, 32)) failed at line "
        f"{line_of(source, '.view(b, t')}: view(b, t, c) after transpose needs contiguous memory"
    )
    assert outcome.hint == "use reshape(b, t, c), or .contiguous() before the view"


def test_so_does_the_files_own_use(opened: Open) -> None:
    source = written(merged="y.transpose(1, 2).view(b, t, c)")
    source += "\nif __name__ == '__main__':\n    Heads(32, 4)(torch.randn(2, 10, 32))\n"
    assert (
        "calling Heads(32, 4) with (torch.randn(2, 10, 32))"
        in refused(opened(source, "Heads")).reason
    )


@pytest.mark.parametrize("arguments", ["dim, heads", "dim=64, heads=4", "dim=64, heads=8"])
@pytest.mark.parametrize(
    "scores",
    [
        "s = q @ k / self.width ** 0.5",
        "s = torch.matmul(q, k) * self.width ** -0.5",
        "s = q.matmul(k); s = s / self.width ** 0.5",
        "s = torch.einsum('bhid,bhdj->bhij', q, k)",
        "q = q * self.width ** -0.5; raw = q @ k; s = raw + 0.0",
    ],
)
def test_keys_that_were_not_transposed_are_the_answer(
    opened: Open, scores: str, arguments: str
) -> None:
    source = written(scores=scores, arguments=arguments)
    problem = refused(opened(source, "Heads")).problem
    assert problem is not None
    assert (problem.code, problem.span.line) == ("MHA103", line_of(source, scores))
    width = 24 if "=" not in arguments else 64
    heads = 8 if arguments.endswith("8") else 4
    assert problem.message == (
        f"scores: q (B, h, T, d) = (3, {heads}, 7, {width // heads}) @ k (B, h, T, d) = "
        f"(3, {heads}, 7, {width // heads}): the last axis of q, {width // heads} channels, "
        "meets the 7 positions of k"
    )
    assert problem.help == "transpose k: k.transpose(-2, -1)"


@pytest.mark.parametrize("given", [{}, {"build": "Heads(64, 4)"}])
def test_a_length_that_happens_to_fit_does_not_hide_it(opened: Open, given: dict[str, str]) -> None:
    """Of the usual sizes some have 16 positions, and 64 channels make 4 heads of 16."""
    source = written(scores="s = q @ k / 4", arguments="dim=64, heads=4")
    problem = refused(opened(source, "Heads", **given)).problem
    assert problem is not None and problem.code == "MHA103"


@pytest.mark.parametrize("stated", [True, False])
def test_nor_does_a_length_that_the_user_chose(opened: Open, stated: bool) -> None:
    source = written(scores="s = q @ k / 4", arguments="dim=64, heads=4")
    call = "torch.randn(2, 16, 64)"
    if not stated:
        source += f"\nif __name__ == '__main__':\n    Heads(64, 4)({call})\n"
    given = {"build": "Heads(64, 4)", "call": call} if stated else {}
    outcome = refused(opened(source, "Heads", **given))
    assert outcome.reason.startswith(
        "calling Heads(64, 4) with (torch.randn(2, 16, 64)) works at this length only: scores: q "
    )
    assert outcome.problem is not None
    assert (outcome.problem.code, outcome.problem.span.line) == (
        "MHA103",
        line_of(source, "s = q @ k"),
    )
    assert isinstance(opened(written(), "Heads", build="Heads(64, 4)", call=call), Subject)


def test_values_that_were_transposed_are_the_answer(opened: Open) -> None:
    source = written(context="w @ v.transpose(-2, -1)")
    outcome = refused(opened(source, "Heads"))
    assert f"failed at line {line_of(source, 'v.transpose')}: w (3, 4, 7, 7) @ " in outcome.reason
    assert outcome.reason.endswith(
        "the last axis of w, 7, must be as long as the last but one of v.transpose(-2, -1), 6"
    )
    assert outcome.hint == "do not transpose: v"
    assert outcome.problem is None


def test_widths_that_fit_with_one_head_only_are_the_answer(opened: Open) -> None:
    source = written().replace("self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))",
                               "self.v = (nn.Linear(dim, dim) for _ in range(3))\n"
                               "        self.o = nn.Linear(self.width, dim)")  # fmt: skip
    problem = refused(opened(source, "Heads")).problem
    assert problem is not None
    assert (problem.code, problem.span.line) == ("MHA103", line_of(source, "self.o(y"))


def test_guessed_widths_may_contradict_each_other(opened: Open) -> None:
    """Other widths make it run with several heads, so the code is not to blame."""
    source = """
    class Inner(nn.Module):
        def __init__(self, dim, inner_dim, heads):
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(dim, 3 * inner_dim * heads)
            self.o = nn.Linear(dim, dim)
        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v
            return self.o(y.transpose(1, 2).flatten(2))
    """
    subject = opened(source, "Inner")
    assert isinstance(subject, Subject)
    assert subject.build == "Inner(dim=192, inner_dim=48, heads=4)"


@pytest.mark.parametrize(
    "forward",
    [
        "(x + self.places).transpose(0, 1)",  # a table of positions sets their number
        "self.mix(x.transpose(1, 2)).transpose(1, 2)",  # so does a map over them
    ],
)
def test_a_length_that_parameters_set_is_kept(opened: Open, forward: str) -> None:
    source = f"""
    class Sized(nn.Module):
        def __init__(self, dim=24, heads=4, steps=6):
            super().__init__()
            self.places = nn.Parameter(torch.zeros(steps, dim))
            self.mix = nn.Linear(steps, steps)
            self.attn = nn.MultiheadAttention(dim, heads)
        def forward(self, x):
            x = {forward}
            return self.attn(x, x, x)[0]
    """
    subject = opened(source, "Sized")
    assert isinstance(subject, Subject)
    assert subject.args[0].shape[1] == 6


def test_dense_weights_set_the_length_too(opened: Open) -> None:
    """The weights of a Synthesizer are as long as it was built for: a head is that wide by chance."""
    source = """
    class Synthesizer(nn.Module):
        def __init__(self, dim=64, heads=4, max_len=16):
            super().__init__()
            self.heads, self.width = heads, dim // heads
            self.dense, self.v, self.o = nn.Linear(dim, heads * max_len), nn.Linear(dim, dim), nn.Linear(dim, dim)
        def forward(self, x):
            b, t, c = x.shape
            w = self.dense(x).view(b, t, self.heads, -1).transpose(1, 2).softmax(-1)
            v = self.v(x).view(b, t, self.heads, self.width).transpose(1, 2)
            return self.o((w @ v).transpose(1, 2).reshape(b, t, c))
    """
    subject = opened(source, "Synthesizer")
    assert isinstance(subject, Subject)
    assert subject.args[0].shape == (3, 16, 64)


def test_a_function_that_takes_transposed_keys_is_not_blamed(opened: Open) -> None:
    source = """
    def attend(q, k, v):
        '''q (B, h, T, d), k (B, h, d, S), v (B, h, S, d)'''
        return (q @ k / q.size(-1) ** 0.5).softmax(-1) @ v
    """
    outcome = opened(source, "attend")
    assert isinstance(outcome, Subject) or refused(outcome).problem is None
