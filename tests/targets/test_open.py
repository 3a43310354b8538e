"""Tests of mha_lint.targets.open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.infer import search
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

Open = Callable[..., object]
Write = Callable[..., Path]

MHA = """
class MHA(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.25, bias=True):
        super().__init__()
        self.m = nn.MultiheadAttention(d_model, num_heads, dropout, bias, batch_first=True)
    def forward(self, query, key=None, *, need=False):
        key = query if key is None else key
        return self.m(query, key, key, need_weights=need)
"""


def test_what_was_stated_is_what_is_built(opened: Open) -> None:
    subject = opened(MHA, "MHA", build="MHA(64, 8)", call="torch.randn(2, 10, 64), need=True")
    assert isinstance(subject, Subject)
    assert isinstance(subject.module, torch.nn.Module)
    assert not subject.module.training
    assert subject.how == "stated"
    assert subject.argument_names == ("query", "need")
    assert subject.kwargs == {"need": True}
    assert subject.args[0].shape == (2, 10, 64)
    assert subject.sizes == {"d_model": 64, "num_heads": 8}
    assert subject.stated == {"d_model": 64, "num_heads": 8, "dropout": 0.25, "bias": True}
    assert (subject.span.line, subject.span.column) == (5, 1)
    assert subject.span.end_column == len("class MHA(nn.Module):") + 1
    assert subject.name == "MHA"


def test_expressions_know_the_files_names_and_torch(opened: Open) -> None:
    source = "SIZE = 32\n" + MHA
    subject = opened(
        source, "MHA", build="MHA(SIZE, int(math.sqrt(16)))", call="F.relu(torch.ones(1, 2, SIZE))"
    )
    assert isinstance(subject, Subject)
    assert subject.args[0].shape == (1, 2, 32)


def test_only_the_build_is_stated(opened: Open) -> None:
    subject = opened(MHA, "MHA", build="MHA(40, 5)")
    assert isinstance(subject, Subject)
    assert (subject.build, subject.call) == ("MHA(40, 5)", "torch.randn(3, 7, 40)")


def test_only_the_call_is_stated(opened: Open) -> None:
    subject = opened(MHA, "MHA", call="torch.randn(2, 5, 24), torch.randn(2, 9, 24)")
    assert isinstance(subject, Subject)
    assert subject.args[1].shape == (2, 9, 24)


def test_a_module_that_the_file_holds(opened: Open) -> None:
    subject = opened(MHA + "\nready = MHA(16, 2)\n", "ready")
    assert isinstance(subject, Subject)
    assert (subject.build, subject.args[0].shape[-1]) == ("ready", 16)


def test_a_nested_class(opened: Open) -> None:
    source = """
class Outer:
    class Inner(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.m = nn.MultiheadAttention(dim, heads, batch_first=True)
        def forward(self, x):
            return self.m(x, x, x)[0]
"""
    subject = opened(source, "Outer.Inner")
    assert isinstance(subject, Subject)
    assert subject.build == "Outer.Inner(dim=24, heads=4)"
    assert subject.span.line == 6


def test_a_name_that_the_file_only_imports(write: Write) -> None:
    home = write(MHA, "pkg/core.py")
    write("from .core import MHA\n", "pkg/__init__.py", head=False)
    path = write("from pkg.core import MHA\n", "face.py", head=False)
    spec = TargetSpec(text="t", path=str(path), qualname="MHA")
    subject = open_subject(spec, timeout=10.0)
    assert isinstance(subject, Subject)
    assert (subject.span.path, subject.span.line) == (str(home), 5)


def test_an_installed_class() -> None:
    spec = TargetSpec(
        text="torch.nn:MultiheadAttention", module="torch.nn", qualname="MultiheadAttention"
    )
    subject = open_subject(spec, timeout=30.0)
    assert isinstance(subject, Subject)
    assert subject.build == "MultiheadAttention(embed_dim=24, num_heads=4, dropout=0.1)"


def test_repeatable_to_the_bit(opened: Open) -> None:
    source = MHA.replace(
        "super().__init__()", "super().__init__(); self.w = nn.Parameter(torch.empty(3, 5))"
    )
    subject = opened(source, "MHA", build="MHA(16, 2)", call="torch.randn(1, 3, 16)")
    assert isinstance(subject, Subject)
    again = subject.rebuilt()
    assert isinstance(subject.module, torch.nn.Module)
    assert isinstance(again.module, torch.nn.Module)
    for one, other in zip(
        subject.module.state_dict().values(), again.module.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    assert subject.notes == ("parameters left uninitialised were filled at random: w",)


def test_the_arguments_are_not_changed_by_the_first_call(opened: Open) -> None:
    source = """
class InPlace(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.m = nn.MultiheadAttention(d, 2, batch_first=True)
    def forward(self, x, cache):
        x.mul_(0)
        cache[0].zero_()
        return self.m(x, x, x)[0]
"""
    call = "torch.ones(1, 3, 8), [torch.ones(2)]"
    subject = opened(source, "InPlace", build="InPlace(8)", call=call)
    assert isinstance(subject, Subject)
    assert subject.args[0].sum() == 24 and subject.args[1][0].sum() == 2


def test_a_float64_module_is_built_as_such(opened: Open) -> None:
    source = "torch.set_default_dtype(torch.float64)\n" + MHA
    subject = opened(source, "MHA", build="MHA(16, 2)", call="torch.randn(1, 3, 16)")
    assert isinstance(subject, Subject)
    assert subject.args[0].dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32


def test_a_half_module_gets_half_inputs(opened: Open) -> None:
    subject = opened(MHA, "MHA", build="MHA(16, 2).double()")
    assert isinstance(subject, Subject)
    assert subject.args[0].dtype is torch.float64


@pytest.mark.parametrize(
    ("build", "call", "reason"),
    [
        ("MHA(", "x", "building MHA( failed: SyntaxError: '(' was never closed (<mha-lint>, line 1)"),
        ("Nope(3)", "x", "building Nope(3) failed: NameError: name 'Nope' is not defined"),
        ("3", "x", "building 3 failed: TypeError: 3 made a int, not a module"),
        ("MHA(16, 2)", "torch.randn(", "making the arguments torch.randn( failed: SyntaxError: "
         "'(' was never closed (<mha-lint>, line 1)"),
        ("MHA(16, 2)", "nothing", "making the arguments nothing failed: NameError: "
         "name 'nothing' is not defined"),
        ("MHA(16, 2)", "torch.randn(1, 3, 8)", "calling MHA(16, 2) with (torch.randn(1, 3, 8)) "
         "failed: AssertionError: was expecting embedding dimension of 16, but got 8"),
        ("MHA('a', 2)", "x", "building MHA('a', 2) failed: TypeError: "
         "'<=' not supported between instances of 'str' and 'int'"),
    ],
)  # fmt: skip
def test_stated_expressions_that_fail(opened: Open, build: str, call: str, reason: str) -> None:
    outcome = opened(MHA, "MHA", build=build, call=call)
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == reason
    assert outcome.target
    assert "Error" in outcome.detail


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit(4)", "SystemExit: 4"),
        ("raise KeyboardInterrupt('mine')", "KeyboardInterrupt: mine"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("x.nope", "AttributeError: 'Tensor' object has no attribute 'nope'"),
        ("return 3", "TypeError: the call returned int, without any tensor"),
        ("return None", "TypeError: the call returned NoneType, without any tensor"),
        ("return self.forward(x)", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_whatever_a_call_does_is_data(opened: Open, body: str, reason: str) -> None:
    source = f"import sys\nclass A(nn.Module):\n    def forward(self, x):\n        {body}\n"
    outcome = opened(source, "A", build="A()", call="torch.ones(1)")
    assert isinstance(outcome, NotChecked)
    assert outcome.reason.startswith(f"calling A() with (torch.ones(1)) failed: {reason}")


def test_a_call_that_hangs(opened: Open) -> None:
    source = "class A(nn.Module):\n    def forward(self, x):\n        while True: pass\n"
    outcome = opened(source, "A", build="A()", call="torch.ones(1)", timeout=0.5)
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == "building and calling A took longer than 0.5 s"
    assert outcome.hint == "pass a smaller --build and --call, or raise --timeout"


def test_what_is_printed_never_reaches_us(opened: Open, capsys: pytest.CaptureFixture[str]) -> None:
    source = MHA.replace("super().__init__()", "super().__init__(); print('built' * 10000)")
    assert isinstance(opened(source, "MHA"), Subject)
    assert capsys.readouterr() == ("", "")


def test_what_could_not_be_guessed_is_said(opened: Open) -> None:
    source = """
class Odd(nn.Module):
    def __init__(self, d_model, gadget):
        super().__init__()
        if not issubclass(gadget.__class__, Exception):
            raise ValueError("no")
        self.m = nn.MultiheadAttention(d_model, 2)
    def forward(self, x):
        return self.m(x, x, x)[0]
"""
    outcome = opened(source, "Odd")
    assert isinstance(outcome, NotChecked)
    assert outcome.reason.startswith("building Odd(d_model=24, gadget=2) failed: ValueError")
    assert outcome.hint == (
        'could not guess gadget; pass --build "Odd(d_model=..., gadget=...)" '
        '--call "torch.randn(2, 10, 64)"'
    )


@pytest.mark.parametrize(
    ("build", "call", "hint"),
    [
        ("MHA", None, 'call the class: --build "MHA(d_model=..., num_heads=...)"'),
        ("MHA(16, 2)", "torch.ones(3)", "it is raised at line 11 of attention.py"),
        (None, "3", 'pass --build "MHA(d_model=..., num_heads=...)"'),
    ],
)
def test_the_hint_names_only_what_was_not_stated(
    opened: Open, build: str | None, call: str | None, hint: str
) -> None:
    outcome = opened(MHA, "MHA", build=build, call=call)
    assert isinstance(outcome, NotChecked)
    assert outcome.hint == hint


def test_the_hint_does_not_repeat_what_failed(opened: Open) -> None:
    source = MHA.replace("        key = query", "        raise ValueError\n        key = query")
    outcome = opened(source, "MHA")
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == (
        "calling MHA(d_model=24, num_heads=4) with (torch.randn(3, 7, 24)) failed: ValueError"
    )
    assert outcome.hint == 'pass --build "MHA(d_model=24, num_heads=4)" --call "query=..."'


def test_a_guessed_call_that_does_not_end_is_said(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    source = MHA.replace("        key = query", "        while True: pass\n        key = query")
    outcome = opened(source, "MHA")
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == (
        "calling MHA(d_model=24, num_heads=4) with (torch.randn(3, 7, 24)) took longer than 0.2 s, "
        "the limit of one try"
    )
    assert outcome.hint == (
        'does it end? If it only takes long: pass --build "MHA(d_model=..., num_heads=...)" '
        '--call "query=...", with smaller sizes'
    )


@pytest.mark.parametrize(
    ("arguments", "side"),
    [("img_size=32, patch=8", 32), ("image_size=24, patch=6", 24), ("patch_size=6, patch=6", 24)],
)
def test_an_image_is_as_large_as_the_constructor_says(
    opened: Open, arguments: str, side: int
) -> None:
    source = f"""
class Patches(nn.Module):
    def __init__(self, {arguments}, dim=24):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.places = nn.Parameter(torch.zeros(1, ({side} // patch) ** 2, dim))
        self.m = nn.MultiheadAttention(dim, 2, batch_first=True)
    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.places
        return self.m(x, x, x)[0]
"""
    subject = opened(source, "Patches")
    assert isinstance(subject, Subject)
    assert subject.call == f"torch.randn(3, 3, {side}, {side})"


def test_a_failing_call_shows_what_was_tried(opened: Open) -> None:
    source = """
class Picky(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.m = nn.MultiheadAttention(d_model, 2, batch_first=True)
    def forward(self, x):
        if x.sum() != 12345:
            raise ValueError("only one input will do")
        return self.m(x, x, x)[0]
"""
    outcome = opened(source, "Picky")
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == (
        "calling Picky(d_model=24) with (torch.randn(3, 7, 24)) failed: "
        "ValueError: only one input will do; traced without a call, attention seems to stand at"
        " line 12; the call fails at line 11"
    )
    assert outcome.hint == ('pass --build "Picky(d_model=24)" --call "x=torch.randn(2, 10, 24)"')


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Missing", "has no class or function Missing"),
        ("SIZE", "SIZE is a int, not a class or function"),
        ("Broken", "Broken could not be defined: NameError: name 'Undefined' is not defined"),
    ],
)
def test_names_that_are_no_module(opened: Open, name: str, reason: str) -> None:
    source = "SIZE = 3\nclass Broken(Undefined):\n    pass\nprint(1)\n"
    outcome = opened(source, name)
    assert isinstance(outcome, NotChecked)
    assert reason in outcome.reason


def test_a_spec_without_a_place() -> None:
    outcome = open_subject(TargetSpec(text="thing"), timeout=1.0)
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == "thing names neither a file nor a module"


def test_user_code_can_be_run_later_as_it_ran_first(write: Write) -> None:
    write("WIDTH = 2\n", "late.py", head=False)
    path = write(
        MHA.replace(
            "        key = query", "        import late\n        print(late)\n        key = query"
        )
    )
    spec = TargetSpec(text="t", path=str(path), qualname="MHA")
    subject = open_subject(spec, timeout=10.0)
    assert isinstance(subject, Subject)
    with subject.environment():
        assert subject.module(*subject.args)[0].shape == subject.args[0].shape
    with pytest.raises(ModuleNotFoundError):
        subject.module(*subject.args)


def test_arguments_that_do_not_fit_each_other_prove_nothing(opened: Open) -> None:
    body = """\
import torch
from torch import nn


class Inner(nn.Module):
    def forward(self, queries, keys, values):
        b, length, heads, width = queries.shape
        scores = torch.einsum("blhe,bshe->bhls", queries, keys) * width**-0.5
        return torch.einsum("bhls,bshd->blhd", scores.softmax(-1), values)
"""
    outcome = opened(body, "Inner")
    assert getattr(outcome, "problem", None) is None
