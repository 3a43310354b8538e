"""Tests of mha_lint.targets.scan."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mha_lint.targets.scan import Candidate, scan_file

Write = Callable[..., Path]


def _scan(write: Write, source: str, name: str = "a.py") -> dict[str, Candidate]:
    return {c.qualname: c for c in scan_file(str(write(source, name)))}


def test_scanning_imports_no_torch(write: Write) -> None:
    path = write("class A(nn.Module):\n    def forward(self, x):\n        return x\n")
    code = (
        "import sys; from mha_lint.targets.scan import scan_file; "
        "from mha_lint.targets.resolve import parse_target, expand; "
        f"scan_file({str(path)!r}); expand([parse_target({str(path)!r}, cwd='/')], cwd='/'); "
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_two_contractions_around_a_softmax(write: Write) -> None:
    found = _scan(
        write,
        """
        class Whatever(nn.Module):
            def forward(self, a, b, c):
                s = a @ b.transpose(-2, -1)
                return F.softmax(s, dim=-1) @ c
        """,
    )
    assert found["Whatever"].reason == "softmax among contractions"
    assert found["Whatever"].line == 5
    assert found["Whatever"].end_line == 8
    assert found["Whatever"].kind == "class"


def test_the_class_name_does_not_matter(write: Write) -> None:
    found = _scan(
        write,
        """
        class MultiHeadAttention(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.lin = nn.Linear(d, d)
            def forward(self, x):
                return self.lin(x).relu()
        """,
    )
    assert found == {}


def test_kernels_and_torch_layers_under_other_names(write: Write) -> None:
    found = _scan(
        write,
        """
        from torch.nn import MultiheadAttention as Mixer
        from torch.nn.functional import scaled_dot_product_attention as mix
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.m = Mixer(8, 2)
            def forward(self, x):
                return self.m(x, x, x)[0]
        class B(nn.Module):
            def forward(self, q, k, v):
                return mix(q, k, v)
        class C(nn.TransformerEncoderLayer):
            pass
        """,
    )
    assert found["A"].reason == "makes nn.MultiheadAttention"
    assert found["B"].reason == "calls scaled_dot_product_attention"
    assert found["C"].reason == "extends nn.TransformerEncoderLayer"


def test_helpers_and_bases_are_followed(write: Write) -> None:
    found = _scan(
        write,
        """
        def weigh(s):
            return torch.exp(s).softmax(-1)
        class Base(nn.Module):
            def mix(self, q, k, v):
                return torch.bmm(weigh(torch.bmm(q, k)), v)
        class Derived(Base):
            def forward(self, x):
                return self.mix(x, x.mT, x)
        """,
    )
    assert list(found) == ["Derived"]


def test_wrappers_name_what_they_construct(write: Write) -> None:
    found = _scan(
        write,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([Layer() for _ in range(2)])
                self.head = Head()
            def forward(self, x):
                return self.head(x)
        class Layer(nn.Module):
            def forward(self, x):
                return F.scaled_dot_product_attention(x, x, x)
        class Head(nn.Module):
            def forward(self, x):
                return x
        """,
    )
    assert found["Model"].reason == "constructs Layer"
    assert found["Model"].constructs == ("Layer", "Head")
    assert "Head" not in found


def test_attention_without_dot_products_or_softmax(write: Write) -> None:
    found = _scan(
        write,
        """
        class Additive(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.w, self.v = nn.Linear(2 * d, d), nn.Linear(d, 1)
            def forward(self, h, enc):
                e = torch.tanh(self.w(torch.cat([h, enc], 2)))
                a = self.v(e).softmax(1)
                return (a * enc).sum(1)
        class NoSoftmax(nn.Module):
            def forward(self, q, k, v):
                scores = torch.matmul(q, k.transpose(-1, -2)) / 8
                return torch.matmul(scores, v)
        """,
    )
    assert found["Additive"].reason == "contracts what it normalised"
    assert found["NoSoftmax"].reason == "two contractions in a chain"


def test_what_holds_no_attention(write: Write) -> None:
    found = _scan(
        write,
        """
        from abc import abstractmethod
        from dataclasses import dataclass
        from torch.utils.data import Dataset
        @dataclass
        class Config:
            n_head: int = 4
        class Data(Dataset):
            def __getitem__(self, i):
                return torch.softmax(self.a @ self.b, -1) @ self.c
        class Abstract(nn.Module):
            @abstractmethod
            def score(self, q, k): ...
            def forward(self, q, k, v):
                return torch.softmax(self.score(q, k) @ k, -1) @ v
        class Unfinished(nn.Module):
            def attend(self, q, k, v):
                return torch.softmax(q @ k.mT, -1) @ v
            def forward(self, x):
                raise NotImplementedError
        class Classifier(nn.Module):
            def forward(self, x):
                return torch.softmax(x @ self.w, -1)
        class LoRA(nn.Module):
            def forward(self, x):
                return x @ self.a @ self.b
        class Contrastive(nn.Module):
            def forward(self, a, b):
                return F.cross_entropy(a @ b.t(), torch.arange(len(a)))
        """,
    )
    assert found == {}


def test_functions_that_attend(write: Write) -> None:
    found = _scan(
        write,
        """
        def attention(query, key, value):
            w = torch.softmax(query @ key.transpose(-2, -1), -1)
            return w @ value
        def helper(q, k, v):
            return torch.softmax(q @ k.mT, -1) @ v
        class Uses(nn.Module):
            def forward(self, x):
                return helper(x, x, x)
        def normalise(x, dim):
            return torch.softmax(x, dim)
        def test_reference():
            q = k = v = torch.randn(2, 3, 4)
            return torch.softmax(q @ k.mT, -1) @ v
        """,
    )
    assert [(c.qualname, c.kind) for c in found.values()] == [
        ("attention", "function"),
        ("Uses", "class"),
    ]


def test_candidates_of_other_files_are_followed(write: Write) -> None:
    write(
        """
        class Core(nn.Module):
            def forward(self, q, k, v):
                return F.scaled_dot_product_attention(q, k, v)
        """,
        "core.py",
    )
    found = _scan(
        write,
        """
        from core import Core
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.core = Core()
            def forward(self, x):
                return self.core(x, x, x)
        """,
        "outer.py",
    )
    assert found["Outer"].reason == "constructs Core"
    assert found["Outer"].constructs == ()


def test_files_that_import_each_other(write: Write) -> None:
    write("from b import B\nclass A(nn.Module):\n    def forward(self, x): return B()(x)\n", "a.py")
    path = write(
        "from a import A\nclass B(nn.Module):\n    def forward(self, x): return A()(x)\n", "b.py"
    )
    assert scan_file(str(path)) == []


def test_bases_in_a_circle(write: Write) -> None:
    assert _scan(write, "class A(B):\n    pass\nclass B(A):\n    pass\n") == {}


def test_a_long_row_of_makers_is_one_search(tmp_path: Path) -> None:
    row = "class C{}(nn.Module):\n def __init__(self): self.m = C{}()\n def forward(self, x): return x\n"
    last = "class C600(nn.Module):\n def __init__(self): self.m = nn.MultiheadAttention(8, 2)\n"
    rows = "".join(row.format(i, i + 1) for i in range(600))
    path = tmp_path / "row.py"
    path.write_text(f"from torch import nn\n{rows}{last} def forward(self, x): return x\n")
    started = time.process_time()
    found = scan_file(str(path))
    assert [c.qualname for c in found] == [f"C{i}" for i in range(601)]
    assert found[0].reason == "constructs C1"
    assert time.process_time() - started < 3
