"""Tests of mha_lint.targets.usage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mha_lint.model.target import TargetSpec
from mha_lint.targets.open import open_subject
from mha_lint.targets.source import read_source
from mha_lint.targets.subject import Subject
from mha_lint.targets.symbolic import apart
from mha_lint.targets.usage import Usage, find_usages

Write = Callable[..., Path]

CLASS = """
class A(nn.Module):
    def __init__(self, d, h, p=0.1):
        super().__init__()
        self.m = nn.MultiheadAttention(d, h, batch_first=True)
    def forward(self, x, y=None, mask=None):
        y = x if y is None else y
        return self.m(x, y, y, key_padding_mask=mask)[0]
"""


def _usages(write: Write, code: str, name: str = "A") -> list[Usage]:
    return find_usages(read_source(str(write(CLASS + "\n" + code))), name)


def test_a_direct_call(write: Write) -> None:
    (usage,) = _usages(write, 'if __name__ == "__main__":\n    A(8, 2)(torch.randn(2, 3, 8))\n')
    assert (usage.build, usage.call) == ("A(8, 2)", "torch.randn(2, 3, 8)")
    assert (usage.where, usage.own, usage.doubtful) == ("attention.py:14", True, False)


def test_names_stand_for_what_made_them(write: Write) -> None:
    code = """
if __name__ == "__main__":
    B, T, D = 2, 3, 8
    heads = 2
    model = A(D, heads).to("cuda").eval()
    x = torch.randn(B, T, D)
    x = x * 2
    y = model(x.cuda(), mask=None)
"""
    usage = _usages(write, code)[0]
    assert (usage.build, usage.call) == ("A(8, 2)", "torch.randn(2, 3, 8) * 2, mask=None")


def test_one_tensor_passed_twice_stays_one(write: Write) -> None:
    code = "x = torch.randn(2, 3, 8)\nm = A(8, 2)\nm(x, x)\n"
    usage = _usages(write, code)[0]
    assert usage.call == "(x := torch.randn(2, 3, 8)), x"
    assert apart(usage.call) == "torch.randn(2, 3, 8), torch.randn(2, 3, 8)"


def test_objects_that_are_changed_after_they_are_made(write: Write) -> None:
    code = """
mask = torch.zeros(2, 5).bool()
mask[1, 3:] = True
mask[0] |= False
A(8, 2)(torch.randn(2, 5, 8), mask=mask)
"""
    usage = _usages(write, code)[0]
    assert usage.call is not None
    assert usage.call.startswith("torch.randn(2, 5, 8), mask=[(mask := torch.zeros(2, 5).bool()), ")
    assert "mask.__setitem__((1, slice(3, None, None)), True)" in usage.call
    assert usage.call.endswith("][0]")


def test_the_output_of_an_earlier_call(write: Write) -> None:
    code = """
def demo():
    m = A(8, 2)
    y = m(torch.randn(1, 4, 8))
    return m(torch.randn(1, 1, 8), y)
"""
    calls = [u.call for u in _usages(write, code) if u.call]
    assert calls == [
        "torch.randn(1, 1, 8), A(8, 2)(torch.randn(1, 4, 8))",
        "torch.randn(1, 4, 8)",
    ]


def test_loops_defaults_and_parametrised_tests(write: Write) -> None:
    code = """
import pytest
@pytest.mark.parametrize("d,h", [(16, 4), (8, 2)])
def test_a(d, h, n=3):
    for m in [A(d, h), A(8, 2)]:
        for i, t in enumerate((5, 6)):
            m(torch.randn(n, t, d))
"""
    usage = _usages(write, code)[0]
    assert (usage.build, usage.call) == ("A(16, 4)", "torch.randn(3, 5, 16)")


def test_docstrings_show_usage(write: Write) -> None:
    source = '''
class A(nn.Module):
    """An attention.

    >>> m = A(8)
    >>> m(torch.randn(2, 3, 8)).shape

    ```python
    A(16)(torch.randn(2, 3, 16))
    ```
    """
    def __init__(self, d):
        super().__init__()
'''
    found = find_usages(read_source(str(write(source))), "A")
    assert [(u.build, u.call, u.doubtful) for u in found if u.call] == [
        ("A(8)", "torch.randn(2, 3, 8)", True),
        ("A(16)", "torch.randn(2, 3, 16)", True),
    ]


def test_what_is_shown_to_fail_is_no_usage(write: Write) -> None:
    code = """
import pytest
def test_bad():
    with pytest.raises(ValueError):
        A(8, 3)(torch.randn(2, 3, 8))
def run(x, d):
    return A(d, 2)(x)
"""
    assert _usages(write, code) == []


def test_files_beside_are_read_when_the_file_itself_shows_no_call(write: Write) -> None:
    write(
        "import attention\nfrom attention import A as Attention\n"
        "def test_it():\n    assert attention.A(8, 2)(torch.randn(2, 3, 8)) is not None\n"
        "    Attention(16, 2)(torch.randn(2, 3, 16))\n",
        "tests/test_attention.py",
    )
    found = _usages(write, "m = A(4, 2)\n")
    assert [(u.build, u.call, u.own) for u in found] == [
        ("A(8, 2)", "torch.randn(2, 3, 8)", False),
        ("A(16, 2)", "torch.randn(2, 3, 16)", False),
        ("A(4, 2)", None, True),
    ]


def test_the_richest_call_is_recorded_and_the_others_are_kept(write: Write) -> None:
    code = """
if __name__ == "__main__":
    from types import SimpleNamespace as Box
    m = A(8, 2)
    m(torch.randn(2, 3, 8))
    x = torch.randn(2, 3, 8)
    m(x, x, Box(mask=None).mask)
"""
    path = str(write(CLASS + code))
    subject = open_subject(TargetSpec(text=path, path=path, qualname="A"), timeout=10.0)
    assert isinstance(subject, Subject)
    assert subject.how == "usage"
    assert subject.call == "torch.randn(2, 3, 8), torch.randn(2, 3, 8), Box(mask=None).mask"
    assert subject.args[0] is not subject.args[1]
    assert subject.other_calls[0] == "(x := torch.randn(2, 3, 8)), x, Box(mask=None).mask"
    shared = subject.with_call(subject.other_calls[0])
    assert shared.args[0] is shared.args[1]
    assert len(subject.with_call(subject.other_calls[1]).args) == 1


def test_a_large_example_is_made_small(write: Write) -> None:
    code = """
class Model(nn.Module):
    def __init__(self, vocab_size=50000, d_model=512, n_heads=8, num_layers=6):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)
        layer = nn.TransformerEncoderLayer(d_model, n_heads, 4 * d_model, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
    def forward(self, ids):
        return self.enc(self.emb(ids))
if __name__ == "__main__":
    print(Model()(torch.randint(0, 50000, (2, 128))).shape)
"""
    path = str(write(CLASS + code))
    subject = open_subject(TargetSpec(text=path, path=path, qualname="Model"), timeout=20.0)
    assert isinstance(subject, Subject)
    assert subject.sizes["num_layers"] == 2
    assert subject.sizes["vocab_size"] == 101
    assert subject.args[0].shape[1] < 30
    assert any(note.startswith("made smaller than in Model()") for note in subject.notes)
