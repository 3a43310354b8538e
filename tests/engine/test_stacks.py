"""Models whose layers are alike: measured on some, told of all, and never where one differs."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from pathlib import Path

import pytest
from torch import nn

from mha_lint.capture import record
from mha_lint.engine import stacks, target
from mha_lint.engine.run import check
from mha_lint.model.report import TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.resolve import parse_target
from mha_lint.targets.subject import Subject

ATTENTION = """
import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=24, heads=4, causal=False, scaled=True, rate=0.0):
        super().__init__()
        self.heads, self.causal, self.scaled = heads, causal, scaled
        self.rate = rate
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory=None, mask=None, bias=None):
        memory = x if memory is None else memory
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        s = q @ k.transpose(-2, -1)
        s = s / math.sqrt(q.shape[-1]) if self.scaled else s  # the line of the scale
        if self.causal:
            future = torch.ones(s.shape[-2:], dtype=torch.bool).triu(1)
            s = s.masked_fill(future, -math.inf)
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        if bias is not None:
            s = s + bias
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
SCALE = 1 + ATTENTION.split("# the line of the scale")[0].count("\n")
CALL = "torch.randn(3, 7, 24)"


def spec_of(folder: Path, model: str, call: str = CALL) -> TargetSpec:
    file = folder / "model.py"
    file.write_text(ATTENTION + textwrap.dedent(model))
    named = parse_target(f"{file}::Model", cwd=str(folder))
    assert isinstance(named, TargetSpec)
    return dataclasses.replace(named, build="Model()", call=call)


def checked(folder: Path, model: str, call: str = CALL) -> TargetReport:
    spec = spec_of(folder, model, call)
    (report,) = check([spec], Settings(str(folder), timeout=60)).targets
    assert report.status.value == "checked", report.reason
    return report


def shortened(folder: Path, model: str) -> stacks.Shorter | None:
    subject = open_subject(spec_of(folder, model), timeout=60)
    assert isinstance(subject, Subject)
    with subject.environment():
        recording = record(subject.module, subject.args, subject.kwargs)
    return stacks.shorter(subject, recording)


def told(report: TargetReport) -> set[tuple[str, int, str]]:
    """Return the findings without their numbers: each layer has its own."""
    found = ((f.code, f.span.line, re.sub(r"\d+", "#", f.message)) for f in report.findings)
    return set(found)


def rows(report: TargetReport) -> list[tuple[str, int]]:
    return [(site.module, site.repeated) for site in report.sites]


def whole(
    monkeypatch: pytest.MonkeyPatch, folder: Path, model: str, call: str = CALL
) -> TargetReport:
    """Return the report of the same model with each layer measured."""
    with monkeypatch.context() as patch:
        patch.setattr(target, "shorter", lambda subject, recording: None)
        return checked(folder, model, call)


PLAIN = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Attention() for _ in range(9))
            self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(9))
            self.last = nn.Linear(24, 5)

        def forward(self, x):
            for layer, norm in zip(self.layers, self.norms):
                x = x + layer(norm(x))
            return self.last(x)
"""


def test_layers_that_are_alike_are_told_once(tmp_path: Path) -> None:
    report = checked(tmp_path, PLAIN)
    assert rows(report) == [("layers.0", 9)]
    note = "6 of 9 layers compute the same as layers.1, and were not measured again"
    assert note in report.notes
    assert [c.verdict for c in report.crosscheck] == ["match"]


def test_what_one_layer_shows_is_told_of_those_like_it(tmp_path: Path) -> None:
    faulty = PLAIN.replace("Attention()", "Attention(scaled=False)")
    report = checked(tmp_path, faulty)
    assert [(f.code, f.span.line) for f in report.findings] == [("MHA201", SCALE - 1)]
    assert sum(count for _, count in rows(report)) == 9


@pytest.mark.parametrize("place", [0, 4, 8])
def test_a_layer_that_was_made_otherwise_is_measured(tmp_path: Path, place: int) -> None:
    model = PLAIN.replace(
        "Attention() for _ in range(9)", f"Attention(scaled=i != {place}) for i in range(9)"
    )
    report = checked(tmp_path, model)
    (finding,) = report.findings
    assert (finding.code, finding.span.line) == ("MHA201", SCALE - 1)
    (site,) = [s for s in report.sites if s.id == finding.site]
    assert (site.module, site.repeated) == (f"layers.{place}", 1)
    assert sum(count for _, count in rows(report)) == 9


def test_what_differs_in_two_layers_is_told_of_both(tmp_path: Path) -> None:
    made = "Attention(heads=6 if i == 5 else 4, scaled=i not in (3, 5)) for i"
    report = checked(tmp_path, PLAIN.replace("Attention() for _", made))
    assert {f.code for f in report.findings} == {"MHA201"}
    assert [f.message.split(",")[0] for f in report.findings] == [
        f"the scores are not scaled: head_dim is {width}" for width in (6, 4)
    ]


LOOPS = {
    "a layer that its number in the loop treats otherwise": """
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            x = x + layer(norm(x) * (1 if i != 5 else 2))
    """,
    "every second one": """
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            x = x + layer(norm(x), mask=None if i % 2 else torch.ones(7, 7).triu(1).bool())
    """,
    "a mask of its own for each": """
        masks = [torch.ones(7, 7).triu(1 + i // 8).bool() for i in range(9)]
        for layer, norm, mask in zip(self.layers, self.norms, masks):
            x = x + layer(norm(x), mask=mask)
    """,
    "a constant of its own for each": """
        for i in range(9):
            x = x + self.layers[i](self.norms[i](x)) / (i + 1)
    """,
    "the last one transposed": """
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            x = x + layer(norm(x).transpose(0, 1)).transpose(0, 1) if i == 8 else x + layer(norm(x))
    """,
    "all outputs together": """
        seen = []
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x))
            seen.append(x)
        x = torch.stack(seen).mean(0)
    """,
    "skips from the first half to the second": """
        kept = []
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            x = x + kept.pop() if i > 4 else x
            x = x + layer(norm(x))
            if i < 4:
                kept.append(x)
    """,
    "a bias that the first one makes": """
        bias = None
        for layer, norm in zip(self.layers, self.norms):
            bias = norm(x).mean() if bias is None else bias
            x = x + layer(norm(x), bias=bias)
    """,
    "backwards": """
        for layer, norm in zip(reversed(self.layers), reversed(self.norms)):
            x = x + layer(norm(x))
    """,
    "beside one another": """
        x = sum(layer(norm(x)) for layer, norm in zip(self.layers, self.norms))
    """,
    "by its number in the whole": """
        for i in range(9):
            x = x + self.layers[i](self.norms[i](x))
    """,
    "by its number from the end": """
        for i in range(len(self.layers)):
            x = x + self.layers[-1 - i](self.norms[i](x))
    """,
    "a part of the list": """
        for layer, norm in zip(self.layers[:7], self.norms):
            x = x + layer(norm(x))
    """,
    "one of them twice": """
        for layer, norm in zip((*self.layers, self.layers[3]), (*self.norms, self.norms[3])):
            x = x + layer(norm(x))
    """,
}


ALIKE, ONE_OTHER = "Attention()", "Attention(scaled=i != 5)"
SHORTENED = {
    ("every second one", ALIKE),
    ("a bias that the first one makes", ALIKE),
    ("a bias that the first one makes", ONE_OTHER),
}


@pytest.mark.parametrize(("loop", "given"), sorted({*SHORTENED, *((x, ONE_OTHER) for x in LOOPS)}))
def test_the_same_is_told_as_when_each_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str, given: str
) -> None:
    start, _, _ = PLAIN.partition("        for layer")
    body = textwrap.indent(textwrap.dedent(LOOPS[loop]), " " * 12)
    model = start.replace("Attention() for _", f"{given} for i") + body + "\n        return x\n"
    model = model.replace("\n        return x\n", "\n            return self.last(x)\n")
    if (loop, given) not in SHORTENED:
        assert shortened(tmp_path, model) is None
        return
    ours = checked(tmp_path, model)
    assert any("not measured again" in note for note in ours.notes)
    every = whole(monkeypatch, tmp_path, model)
    assert told(ours) == told(every)
    assert [(u.code, u.why) for u in ours.undecided] == [(u.code, u.why) for u in every.undecided]
    assert sum(s.repeated for s in ours.sites) == len(every.sites)
    assert {s.mask for s in ours.sites} == {s.mask for s in every.sites}


HEADS = """
    class Head(nn.Module):
        def __init__(self, width=24, size=3):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(width, size, bias=False) for _ in range(3))
            self.o = nn.Linear(size, width, bias=False)

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            return self.o((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v)


    class Model(nn.Module):
        def __init__(self, num_heads=8):
            super().__init__()
            self.heads = nn.ModuleList(Head() for _ in range(num_heads))

        def forward(self, x):
            out = 0
            for head in self.heads:
                out = out + head(x)
            return out
"""


def test_heads_in_a_list_are_no_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = checked(tmp_path, HEADS)
    every = whole(monkeypatch, tmp_path, HEADS)
    assert report == dataclasses.replace(every, seconds=report.seconds)
    assert [(s.num_heads, s.repeated) for s in report.sites] == [(8, 1)]


def test_a_layer_that_holds_something_else_is_kept_with_the_one_before_it(tmp_path: Path) -> None:
    model = PLAIN.replace("self.last =", "self.layers[5].own = 'x'\n            self.last =")
    short = shortened(tmp_path, model)
    assert short is not None and isinstance(short.subject.module, nn.Module)
    assert list(short.subject.module.get_submodule("norms")._modules) == ["0", "1", "4", "5", "8"]
    assert short.notes == (
        "4 of 9 layers compute the same as layers.1, and were not measured again",
    )


def test_where_all_layers_are_read_together_nothing_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_made", None)  # whoever calls it fails
    start, _, _ = PLAIN.partition("        for layer")
    loop = textwrap.indent(textwrap.dedent(LOOPS["all outputs together"]), " " * 12)
    assert shortened(tmp_path, start + loop + "            return self.last(x)\n") is None


def test_an_encoder_and_a_decoder_each_have_their_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = """
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.own, self.other = Attention(causal=True), Attention()

            def forward(self, x, memory):
                x = x + self.own(x)
                return x + self.other(x, memory)


        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Sequential(*(Attention() for _ in range(6)))
                self.decoder = nn.ModuleList(Both() for _ in range(7))

            def forward(self, x, y):
                memory = self.encoder(x)
                for layer in self.decoder:
                    y = layer(y, memory)
                return y
    """
    call = "torch.randn(3, 7, 24), torch.randn(3, 5, 24)"
    report = checked(tmp_path, model, call)
    assert rows(report) == [
        ("encoder.0", 1),
        ("encoder.1", 5),
        ("decoder.0.own", 7),
        ("decoder.0.other", 7),
    ]
    assert [s.kind for s in report.sites] == ["self", "self", "self", "cross"]
    assert [s.mask for s in report.sites] == ["none", "none", "causal", "none"]
    (finding,) = report.findings
    assert (finding.code, finding.site) == ("MHA108", "Attention.1")
    assert finding.message.startswith("encoder.0.o and encoder.1.q are two linear maps in a row")
    assert told(report) == told(whole(monkeypatch, tmp_path, model, call))


def test_layers_by_turns_are_told_apart(tmp_path: Path) -> None:
    model = PLAIN.replace(
        "Attention() for _ in range(9)", "Attention(causal=i % 2 == 0) for i in range(9)"
    )
    report = checked(tmp_path, model)
    counts = dict.fromkeys(("causal", "none"), 0)
    for site in report.sites:
        counts[site.mask] += site.repeated
    assert counts == {"causal": 5, "none": 4}


def test_a_rate_that_grows_makes_no_layer_another_one(tmp_path: Path) -> None:
    model = PLAIN.replace(
        "Attention() for _ in range(9)", "Attention(rate=0.1 * (i + 1) / 9) for i in range(9)"
    )
    assert rows(checked(tmp_path, model)) == [("layers.0", 9)]


def test_layers_that_share_their_weights_are_each_measured(tmp_path: Path) -> None:
    model = PLAIN.replace(
        "self.last =", "self.layers[4].k = self.layers[3].k\n            self.last ="
    )
    report = checked(tmp_path, model)
    assert sum(count for _, count in rows(report)) == 9
    assert ("layers.4", 1) in rows(report)


def test_a_list_of_few_is_measured_whole(tmp_path: Path) -> None:
    report = checked(tmp_path, PLAIN.replace("range(9)", "range(4)"))
    assert rows(report) == [(f"layers.{i}", 1) for i in range(4)]


HIDDEN = {
    "a projection that is frozen": ("self.layers[5].q.weight.requires_grad_(False)", "MHA115"),
    "projections that begin at zero": (
        "[nn.init.zeros_(p) for m in (self.layers[5].q, self.layers[5].k) for p in m.parameters()]",
        "MHA114",
    ),
}


@pytest.mark.parametrize("what", sorted(HIDDEN))
def test_what_no_call_shows_of_one_layer_is_told(tmp_path: Path, what: str) -> None:
    line, code = HIDDEN[what]
    report = checked(tmp_path, PLAIN.replace("self.last =", f"{line}\n            self.last ="))
    assert [f.code for f in report.findings] == [code]
    assert "layers.5" in report.findings[0].message


@pytest.mark.parametrize(
    ("turn", "left_out"), [("i == 5", False), ("i == len(self.layers) - 1", True), ("i > 0", True)]
)
def test_what_a_number_treats_otherwise_in_training_alone_is_not_left_out(
    tmp_path: Path, turn: str, left_out: bool
) -> None:
    loop = PLAIN.replace("for layer, norm in zip", "for i, (layer, norm) in enumerate(zip").replace(
        "self.norms):", "self.norms)):"
    )
    line = "x = x + layer(norm(x))"
    other = f"{line}\n                x = x.detach() if self.training and {turn} else x"
    assert (shortened(tmp_path, loop.replace(line, other)) is not None) == left_out


TEXT = """
    class Text(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            raise SystemExit(3)

"""


def test_layers_that_cannot_be_compared_are_each_measured(tmp_path: Path) -> None:
    own = "[setattr(layer, 'own', Text('x')) for layer in self.layers]"
    report = checked(
        tmp_path, TEXT + PLAIN.replace("self.last =", f"{own}\n            self.last =")
    )
    assert rows(report) == [(f"layers.{i}", 1) for i in range(9)]
