"""Tests of mha_lint.targets.stubs: what code of packages that are not installed still does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.load import Loaded, load_file
from mha_lint.targets.open import open_subject
from mha_lint.targets.stand_ins import StandIn
from mha_lint.targets.stubs import Missing, MissingPackageError, StubModule, StubState
from mha_lint.targets.subject import Subject

Write = Callable[..., Path]


def _loaded(path: Path) -> Loaded:
    outcome = load_file(str(path), timeout=10.0)
    assert isinstance(outcome, Loaded), outcome.reason
    return outcome


def _opened(path: Path, name: str, call: str = "torch.ones(2, 8)") -> Subject | NotChecked:
    spec = TargetSpec(text=name, path=str(path), qualname=name, build=f"{name}()", call=call)
    return open_subject(spec, timeout=10)


def test_an_initialiser_whose_import_failed_does_nothing(write: Write) -> None:
    write("from .nowhere_inside import fill_, scale_of\n", "parts/init.py", head=False)
    write("", "parts/__init__.py", head=False)
    path = write(
        """
        from parts.init import fill_, scale_of
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.map = nn.Linear(8, 8)
                fill_(self.map.weight, std=0.02)
            def forward(self, x):
                return self.map(x)
        class B(A):
            def forward(self, x):
                scale_of(x)
                return self.map(x)
        """
    )
    found = _opened(path, "A")
    assert isinstance(found, Subject)
    assert "parts.nowhere_inside.fill_(...) does nothing: its import failed" in found.notes
    refused = _opened(path, "B")
    assert isinstance(refused, NotChecked)  # it may well change x in place
    assert "parts.nowhere_inside.scale_of is needed, but its import failed" in refused.reason


def test_versions_are_compared_as_what_they_are_read_from(write: Write) -> None:
    path = write(
        """
        from toolbox_nowhere import read_version
        if read_version("2.10.1+cpu") >= read_version("2.9"):
            attend = F.scaled_dot_product_attention
        OLD = read_version("1.8.0") > read_version("1.10")
        SAME = read_version("2.0") <= read_version("2.0")
        """
    )
    module = _loaded(path).module
    assert module.attend is torch.nn.functional.scaled_dot_product_attention
    assert (module.OLD, module.SAME) == (False, True)


def test_a_question_whether_something_is_there_is_answered_no(write: Write) -> None:
    path = write(
        """
        from toolbox_nowhere import on_tpu, world_size
        class A(nn.Module):
            def forward(self, x):
                if on_tpu() or not x.numel():
                    return x
                return x * 2
        class B(nn.Module):
            def forward(self, x):
                return x * world_size()
        """
    )
    found = _opened(path, "A")
    assert isinstance(found, Subject)
    assert "toolbox_nowhere.on_tpu() is taken to be False: it is not installed" in found.notes
    refused = _opened(path, "B")
    assert isinstance(refused, NotChecked)
    assert refused.hint == (
        "install toolbox_nowhere, or state a --build and --call that do without it"
    )


def test_a_layer_with_the_name_of_one_of_torch(write: Write) -> None:
    path = write(
        """
        from toolbox_nowhere.layers import Conv2d, Dropout, Gauge, MultiheadAttention
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.drop = Dropout(0.25)
            def forward(self, x):
                return self.drop(x)
        class B(nn.Module):
            def __init__(self):
                super().__init__()
                self.gauge = Gauge(8)
        class C(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = MultiheadAttention(8, 2)
        class D(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = Conv2d(8, 8, 1, conv_cfg=None)
        """
    )
    found = _opened(path, "A")
    assert isinstance(found, Subject)
    drop = getattr(found.module, "drop")  # noqa: B009
    assert isinstance(drop, nn.Dropout)
    assert drop.p == 0.25
    note = "toolbox_nowhere.layers.Dropout is taken to be torch.nn.Dropout: it is not installed"
    assert note in found.notes
    for name, needed in (("B", "Gauge"), ("C", "MultiheadAttention"), ("D", "Conv2d")):
        refused = _opened(path, name)
        assert isinstance(refused, NotChecked)
        assert f"toolbox_nowhere.layers.{needed} is needed" in refused.reason


def test_a_base_with_the_name_of_a_container_of_torch(write: Write) -> None:
    path = write(
        """
        from toolbox_nowhere import Base, Sequential
        class Stack(Base, Sequential):
            def __init__(self, width, init_cfg=None):
                super().__init__(nn.Linear(width, width), nn.ReLU(), init_cfg=init_cfg)
        """
    )
    stack = _loaded(path).module.Stack(4)
    assert isinstance(stack, nn.Sequential)
    assert stack(torch.ones(1, 4)).shape == (1, 4)


def test_a_decorator_that_a_missing_package_makes_leaves_what_it_decorates(write: Write) -> None:
    path = write(
        """
        import weaving_nowhere
        class checked:
            def __call__(self, function):
                return self.around(function)
            @weaving_nowhere.decorator
            def around(self, inner, owner, given, named):
                return inner(*given, **named)
        class A(nn.Module):
            @checked()
            def forward(self, x):
                return x + 1
        """
    )
    assert _loaded(path).module.A()(torch.ones(1)).tolist() == [2.0]


def test_nothing_is_an_instance_of_what_is_not_there() -> None:
    state = StubState()
    module = StubModule("absent", state)

    class Derived(module.Kind):  # type: ignore[misc, name-defined]
        pass

    state.loading = False
    kind: type = module.Kind  # type: ignore[assignment]
    assert not isinstance(1, kind)
    assert isinstance(Derived(), StandIn)
    with pytest.raises(MissingPackageError, match="absent is not installed"):
        isinstance(Derived(), kind)


def test_the_package_to_install_is_the_one_that_is_not_there() -> None:
    state = StubState()
    state.loading = False
    lacking = Missing("half.layers.Map", state, "ModuleNotFoundError: No module named 'x'", "x")
    with pytest.raises(MissingPackageError) as caught:
        lacking(3)
    assert caught.value.name == "x"
    broken = Missing("half.layers.Map", state, "ImportError: cannot import name 'Map'")
    with pytest.raises(MissingPackageError) as caught:
        broken(3)
    assert not caught.value.name
