"""Tests of mha_lint.targets.missing: installed packages that lack another one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mha_lint.targets.load import Loaded, load_file

Write = Callable[..., Path]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package, of files by their names, for the time of a test."""
    site = tmp_path / "lib" / "site-packages"
    monkeypatch.syspath_prepend(str(site))

    def install(**files: str) -> None:
        for name, text in files.items():
            file = site / (name.replace("__", "/") + ".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            (file.parent / "__init__.py").touch()
            file.write_text(text)

    return install


def test_what_an_installed_package_lacks_is_replaced_too(
    write: Write, installed: Callable[..., None]
) -> None:
    installed(
        layers_half__pictures="from pixels_nowhere.ops import Resize\nclass Big(Resize):\n    pass\n",
        layers_half__maps="from . import pictures\ndef twice(x):\n    return 2 * x\n",
    )
    path = write(
        """
        from layers_half.maps import twice
        class A(nn.Module):
            def forward(self, x):
                return twice(x)
        """
    )
    loaded = load_file(str(path), timeout=10.0)
    assert isinstance(loaded, Loaded)
    assert loaded.module.A()(torch.ones(1)).item() == 2.0
    assert "pixels_nowhere is not installed: replaced by a stand-in" in loaded.session.notes
    left = [n for n in sys.modules if n.startswith(("layers_half.", "pixels_nowhere"))]
    assert not left
    assert not hasattr(sys.modules.get("layers_half"), "maps")
    with loaded.environment():
        assert sys.modules["layers_half.maps"].twice is loaded.module.twice
    assert "layers_half.maps" not in sys.modules


def test_what_an_installed_package_can_do_without_stays_missing(
    write: Write, installed: Callable[..., None]
) -> None:
    installed(
        layers_whole__fast="from kernels_nowhere import run\n",
        layers_whole__maps="try:\n    from . import fast\nexcept ImportError:\n    fast = None\n"
        "from needed_nowhere import thing\n",
    )
    path = write("from layers_whole.maps import fast, thing\n")
    loaded = load_file(str(path), timeout=10.0)
    assert isinstance(loaded, Loaded)
    assert loaded.module.fast is None
    assert "kernels_nowhere" not in loaded.session.state.stubbed
