"""Tests of mha_lint.targets.load."""

from __future__ import annotations

import socket
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.load import Loaded, load_file, load_module
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject

Write = Callable[..., Path]

LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "mha_lint"}
"""Imported once for the whole process, by whoever comes first."""


def _load(path: Path, timeout: float = 10.0) -> Loaded:
    outcome = load_file(str(path), timeout=timeout)
    assert isinstance(outcome, Loaded), outcome.reason
    return outcome


def test_definitions_and_the_real_file_name(write: Write) -> None:
    path = write("class A:\n    def f(self):\n        return 1\n")
    module = _load(path).module
    assert module.A().f() == 1
    assert module.A.f.__code__.co_filename == str(path)
    assert module.__name__ == "attention"


def test_relative_imports_with_the_parents_init_skipped(write: Write) -> None:
    write("raise RuntimeError('pulls torchvision')\n", "pkg/__init__.py", head=False)
    write("", "pkg/sub/__init__.py", head=False)
    write("VALUE = 7\n", "pkg/other.py", head=False)
    path = write("from ..other import VALUE\nfrom . import near\n", "pkg/sub/target.py", head=False)
    write("NEAR = 8\n", "pkg/sub/near.py", head=False)
    module = _load(path).module
    assert (module.VALUE, module.near.NEAR, module.__name__) == (7, 8, "pkg.sub.target")


def test_names_that_a_package_init_defines(write: Write) -> None:
    write("from .other import VALUE\nOWN = 3\n", "pkg/__init__.py", head=False)
    write("VALUE = 7\n", "pkg/other.py", head=False)
    path = write("from pkg import OWN, VALUE\nfrom pkg import other\n", "pkg/target.py", head=False)
    module = _load(path).module
    assert (module.OWN, module.VALUE, module.other.VALUE) == (3, 7, 7)


def test_relative_imports_without_any_init(write: Write) -> None:
    write("VALUE = 7\n", "src/nets/near.py", head=False)
    path = write("from .near import VALUE\n", "src/nets/target.py", head=False)
    assert _load(path).module.VALUE == 7


def test_absolute_imports_from_a_root_above(write: Write) -> None:
    write("VALUE = 7\n", "src/nets/near.py", head=False)
    path = write("from src.nets.near import VALUE\n", "src/nets/deep/target.py", head=False)
    assert _load(path).module.VALUE == 7


def test_siblings_and_a_utils_that_shadows(write: Write) -> None:
    write("WRONG = 1\n", "utils.py", head=False)
    write("RIGHT = 2\n", "nets/utils.py", head=False)
    path = write("from utils import RIGHT\n", "nets/target.py", head=False)
    assert _load(path).module.RIGHT == 2
    other = write("from utils import WRONG\nfrom nets import utils\n", "nets/second.py", head=False)
    assert _load(other).module.WRONG == 1


def test_a_file_named_as_its_own_package(write: Write) -> None:
    write("", "perf/__init__.py", head=False)
    write("VALUE = 7\n", "perf/part.py", head=False)
    path = write("from perf.part import VALUE\n", "perf/perf.py", head=False)
    module = _load(path).module
    assert (module.VALUE, module.__name__) == (7, "perf.perf")


def test_a_sibling_named_as_an_imported_package(write: Write) -> None:
    write("VALUE = 7\n", "_pytest.py", head=False)
    write("VALUE = 8\n", "pluggy.py", head=False)
    before = sys.modules["pluggy"]
    path = write("import pluggy\nVALUE = pluggy.VALUE\n", "target.py", head=False)
    assert _load(path).module.VALUE == 8
    assert sys.modules["pluggy"] is before


def test_a_sibling_never_shadows_torch_or_the_library(write: Write) -> None:
    write("raise SystemExit\n", "torch.py", head=False)
    write("raise SystemExit\n", "random.py", head=False)
    path = write("import torch, random\nx = torch.ones(1)\n", "target.py", head=False)
    assert _load(path).module.torch is torch


def test_a_name_that_is_no_identifier_and_one_that_is_taken(write: Write) -> None:
    assert _load(write("x = 1\n", "01-first try.py")).module.x == 1
    assert _load(write("x = 2\n", "types.py")).module.x == 2


def test_a_training_script_does_not_train(write: Write, tmp_path: Path) -> None:
    path = write(
        f"""
        batch_size = 4
        device = "cuda" if torch.cuda.is_available() else "cpu"
        table = [i * i for i in range(4)]
        model = open({str(tmp_path / "built")!r}, "w")
        class A(nn.Module):
            def forward(self, x):
                return x.to(device) * batch_size
        for step in range(10**12):
            open({str(tmp_path / "trained")!r}, "w")
        print("never")
        with open({str(tmp_path / "within")!r}, "w") as f:
            pass
        if __name__ == "__main__":
            open({str(tmp_path / "main")!r}, "w")
        """
    )
    module = _load(path).module
    assert (module.batch_size, module.device) == (4, "cpu")
    assert not {"built", "trained", "within", "main"} & {p.name for p in tmp_path.iterdir()}


def test_a_name_is_made_when_another_file_asks_for_it(write: Write, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write(
        f"""
def _repeat(n):
    return lambda x: (x,) * n

def train():
    open({str(trace)!r}, "a").write("x")

times = 1 + 1
pair = _repeat(times)
history = train()
for _ in range(3):
    train()
""",
        "helpers.py",
        head=False,
    )
    path = write(
        """
from helpers import pair
import helpers

class A:
    def f(self, name):
        return pair(3), getattr(helpers, name, None)
"""
    )
    loaded = _load(path)
    assert loaded.module.A().f("nothing") == ((3, 3), None)
    assert not trace.exists()
    with loaded.environment():
        assert loaded.module.A().f("pair")[1](4) == (4, 4)


def test_why_a_name_could_not_be_imported(write: Write) -> None:
    write("from nowhere_at_all import gone\n", "helpers.py", head=False)
    path = write(
        """
from helpers import absent

class A:
    def __init__(self, dim=8):
        absent(dim)
"""
    )
    spec = TargetSpec(text="A", path=str(path), qualname="A", build="A()", call="")
    outcome = open_subject(spec, timeout=10)
    assert isinstance(outcome, NotChecked)
    assert "helpers.absent is needed, but its import failed: ImportError" in outcome.reason
    assert "not installed" not in outcome.reason


def test_a_call_of_a_missing_package_for_its_effect_alone(write: Write) -> None:
    path = write(
        """
        from tracker_nowhere import log, metric
        class A(nn.Module):
            def forward(self, x):
                log("input", x)
                return x * 2
        class B(nn.Module):
            def forward(self, x):
                return metric(x)
        """
    )
    call = "torch.ones(2)"
    spec = TargetSpec(text="A", path=str(path), qualname="A", build="A()", call=call)
    outcome = open_subject(spec, timeout=10)
    assert isinstance(outcome, Subject)
    assert "tracker_nowhere.log(...) does nothing: it is not installed" in outcome.notes
    spec = TargetSpec(text="B", path=str(path), qualname="B", build="B()", call=call)
    refused = open_subject(spec, timeout=10)
    assert isinstance(refused, NotChecked)
    assert (
        "tracker_nowhere.metric is needed, but tracker_nowhere is not installed" in refused.reason
    )


def test_a_package_itself_as_the_target(write: Write) -> None:
    write("VALUE = 7\n", "pkg/near.py", head=False)
    path = write(
        "import gone_nowhere\nfrom .near import VALUE\nclass A:\n    x = VALUE\n",
        "pkg/__init__.py",
        head=False,
    )
    assert _load(path).module.A.x == 7


def test_sizes_that_a_missing_text_would_give(write: Write) -> None:
    path = write(
        """
        n_embd = 24
        with open("input.txt") as f:
            text = f.read()
        chars = sorted(list(set(text)))
        vocab_size = len(chars)
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(vocab_size, n_embd)
        print(text[:100])
        """
    )
    loaded = _load(path)
    assert loaded.module.vocab_size == 29
    assert "vocab_size could not be computed: taken to be 29" in loaded.session.notes


def test_arguments_of_a_script_take_their_defaults(write: Write) -> None:
    path = write(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--dim", type=int, default=32)
        args = parser.parse_args()
        class A(nn.Module):
            def forward(self, x):
                return x * args.dim
        print(args)
        """
    )
    assert _load(path).module.args.dim == 32


def test_packages_that_are_not_installed(write: Write) -> None:
    path = write(
        """
        import flash_attn_nowhere
        from xformers_nowhere.ops import memory_efficient_attention, Thing
        from registry_nowhere import register, Base
        from typing_nowhere import Float

        @register("name")
        @register
        class A(Base):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(2, 2)
            def forward(self, x: Float[torch.Tensor, "b d"], fast=False):
                return memory_efficient_attention(x) if fast else self.lin(x)
        """
    )
    loaded = _load(path)
    module = loaded.module.A()
    assert module(torch.ones(1, 2)).shape == (1, 2)
    with pytest.raises(ImportError) as caught:
        module(torch.ones(1, 2), fast=True)
    assert str(caught.value) == (
        "xformers_nowhere.ops.memory_efficient_attention is needed, "
        "but xformers_nowhere is not installed"
    )
    assert "flash_attn_nowhere is not installed: replaced by a stand-in" in loaded.session.notes


def test_bases_of_a_missing_package_take_what_they_would(write: Write) -> None:
    path = write(
        """
        from toolbox_nowhere import BaseModule, Configured
        class A(BaseModule, Configured):
            def __init__(self, width, init_cfg=None):
                super().__init__(init_cfg=init_cfg)
                self.map = nn.Linear(width, width)
        class B(A):
            def __init__(self):
                super().__init__(8, init_cfg=dict(type="normal"))
        """
    )
    module = _load(path).module
    assert isinstance(module.B(), torch.nn.Module)
    assert module.B().map.weight.shape == (8, 8)


def test_a_class_that_could_not_be_defined_is_no_size(write: Write) -> None:
    path = write(
        """
        class Channels(open("nothing.txt").read()):
            pass
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.channels = Channels()
        """
    )
    loaded = _load(path)
    assert not hasattr(loaded.module, "Channels")
    assert "Channels" in loaded.session.failed


def test_an_optional_import_stays_missing(write: Write) -> None:
    path = write(
        """
        import importlib.util
        try:
            import flash_attn_nowhere
            HAVE = True
        except ImportError:
            HAVE = False
        FOUND = importlib.util.find_spec("flash_attn_nowhere") is not None
        import needed_nowhere
        """
    )
    module = _load(path).module
    assert (module.HAVE, module.FOUND) == (False, False)


def test_a_name_that_a_newer_version_lacks(write: Write) -> None:
    path = write("from torch.nn import NoSuchLayer\nclass A(nn.Module):\n    pass\n")
    loaded = _load(path)
    assert issubclass(loaded.module.A, torch.nn.Module)
    assert any("NoSuchLayer" in note for note in loaded.session.notes)


@pytest.mark.parametrize(
    "statement",
    ["raise SystemExit(3)", "raise KeyboardInterrupt", "raise BaseException('odd')", "1 / 0"],
)
def test_whatever_an_import_raises_is_data(write: Write, statement: str) -> None:
    path = write(f"import torch\n{statement}\n", "bad.py", head=False)
    write("", "__init__.py", head=False)
    target = write("from . import bad\n", "target.py", head=False)
    outcome = load_file(str(path), timeout=5.0)
    # a raise at top level is not run at all, an expression is skipped
    assert isinstance(outcome, Loaded)
    assert isinstance(load_file(str(target), timeout=5.0), Loaded)


def test_a_class_body_that_exits(write: Write) -> None:
    path = write("import sys\nclass A:\n    sys.exit('bye')\n", head=False)
    spec = TargetSpec(text="t", path=str(path), qualname="A")
    outcome = open_subject(spec, timeout=5.0)
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == "A could not be defined: SystemExit: bye"


def test_a_hanging_import_ends(write: Write) -> None:
    path = write("class A:\n    while True:\n        pass\n", head=False)
    outcome = load_file(str(path), timeout=0.4)
    assert isinstance(outcome, NotChecked)
    assert outcome.reason == f"importing {path} took longer than 0.4 s"


def test_a_hanging_import_ends_in_another_thread(write: Write) -> None:
    path = write("class A:\n    while True:\n        pass\n", head=False)
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.append(load_file(str(path), timeout=0.4)))
    thread.start()
    thread.join(20)
    assert isinstance(outcomes[0], NotChecked)


def test_a_slow_assignment_is_left_out(write: Write) -> None:
    path = write(
        """
        import time
        class Slow:
            def __init__(self):
                time.sleep(60)
        unused = Slow()
        class A:
            pass
        """
    )
    assert hasattr(_load(path, timeout=1.0).module, "A")


def test_output_and_global_state_stay_ours(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        """
        import os, sys, warnings, random
        class A:
            print("noise")
            print("more noise", file=sys.stderr)
            sys.path.insert(0, "/nowhere")
            os.environ["MHA_LINT_TEST"] = "1"
            os.chdir("/")
            torch.manual_seed(5)
            random.seed(5)
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            sys.setrecursionlimit(5000)
            warnings.simplefilter("error")
            warnings.warn("unheard")
            sys.modules["json"] = None
        """
    )
    torch.manual_seed(1)
    before = (
        list(sys.path), Path.cwd(), torch.random.get_rng_state().tolist(), torch.get_default_dtype(),
        torch.is_grad_enabled(), sys.getrecursionlimit(), list(warnings.filters), sys.modules["json"],
        list(sys.meta_path), {n for n in sys.modules if n.partition(".")[0] not in LIBRARIES},
    )  # fmt: skip
    _load(path)
    after = (
        list(sys.path), Path.cwd(), torch.random.get_rng_state().tolist(), torch.get_default_dtype(),
        torch.is_grad_enabled(), sys.getrecursionlimit(), list(warnings.filters), sys.modules["json"],
        list(sys.meta_path), {n for n in sys.modules if n.partition(".")[0] not in LIBRARIES},
    )  # fmt: skip
    assert before == after
    assert capsys.readouterr() == ("", "")
    import os

    assert "MHA_LINT_TEST" not in os.environ


def test_the_network_and_pickles_are_refused(write: Write, tmp_path: Path) -> None:
    path = write(
        """
        import pickle, socket
        def net():
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        def unpickle(data):
            return pickle.loads(data)
        def weights(path):
            return torch.load(path, weights_only=False)
        """
    )
    loaded = _load(path)
    torch.save({"w": torch.ones(2)}, tmp_path / "fine.pt")
    torch.save({"w": Path("odd")}, tmp_path / "code.pt")
    with loaded.environment():
        with pytest.raises(RuntimeError, match="does not reach the network"):
            loaded.module.net()
        with pytest.raises(RuntimeError, match="does not unpickle files"):
            loaded.module.unpickle(b"")
        assert loaded.module.weights(tmp_path / "fine.pt")["w"].shape == (2,)
        with pytest.raises(Exception, match=r"[Ww]eights"):
            loaded.module.weights(tmp_path / "code.pt")
    assert "connect" not in vars(socket.socket)


def test_late_imports_work_in_the_environment(write: Write) -> None:
    write("VALUE = 7\n", "pkg/late.py", head=False)
    write("", "pkg/__init__.py", head=False)
    path = write(
        "def f():\n    from .late import VALUE\n    return VALUE\n", "pkg/target.py", head=False
    )
    loaded = _load(path)
    with loaded.environment():
        assert loaded.module.f() == 7
    assert "pkg" not in sys.modules


def test_two_targets_with_the_same_helper_name(write: Write) -> None:
    write("VALUE = 1\n", "one/helper.py", head=False)
    write("VALUE = 2\n", "two/helper.py", head=False)
    source = "from helper import VALUE\n"
    assert _load(write(source, "one/t.py", head=False)).module.VALUE == 1
    assert _load(write(source, "two/t.py", head=False)).module.VALUE == 2


def test_a_changed_file_is_loaded_anew(write: Write) -> None:
    assert _load(write("x = 1\n")).module.x == 1
    assert _load(write("x = 2\n")).module.x == 2


def test_future_annotations_and_dataclasses_in_a_script(write: Write) -> None:
    path = write(
        """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class Config:
            n: Undefined = 3
        for i in range(3):
            print(i)
        """,
        head=False,
    )
    assert _load(path).module.Config().n == 3


def test_installed_modules() -> None:
    loaded = load_module("torch.nn.modules.activation", timeout=20.0)
    assert isinstance(loaded, Loaded)
    assert loaded.module.MultiheadAttention is torch.nn.MultiheadAttention
    missing = load_module("no_such_package_here.x", timeout=5.0)
    assert isinstance(missing, NotChecked)
    assert missing.reason.startswith("importing no_such_package_here.x failed")
    assert missing.hint == (
        "no_such_package_here is neither installed nor below the working directory"
    )


def test_of_what_is_installed_side_by_side_only_its_own_package_is_the_users(
    tmp_path: Path,
) -> None:
    installed = tmp_path / "site-packages"
    for name, text in (
        ("mine_installed/__init__.py", ""),
        ("mine_installed/parts.py", "PARTS = 2\n"),
        (
            "mine_installed/attention.py",
            "import other_installed\nfrom mine_installed.parts import PARTS\n",
        ),
        ("other_installed/__init__.py", "WHOLE = 3\n"),
    ):
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    loaded = _load(installed / "mine_installed" / "attention.py")
    assert loaded.module.PARTS == 2
    assert loaded.module.other_installed.WHOLE == 3
    assert "mine_installed.parts" in loaded.session.modules
    assert "other_installed" not in loaded.session.modules
