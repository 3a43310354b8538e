"""Packages that several targets import are imported once."""

from __future__ import annotations

import importlib
import json
import sys
import sysconfig
import types
from pathlib import Path

import pytest

from mha_lint.model.settings import Running, Settings
from mha_lint.runner import pool, preload
from mha_lint.runner.preload import preloadable
from mha_lint.runner.run import Runner
from mha_lint.targets.resolve import parse_target


def test_only_known_packages_are_imported_for_others() -> None:
    assert preloadable({"os", "transformers", "einops", "mine"}) == ("einops", "transformers")


def test_a_file_of_the_users_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = types.ModuleType("timm")
    mine.__file__ = str(tmp_path / "timm.py")
    monkeypatch.setitem(sys.modules, "timm", mine)
    assert "timm" not in preload.imported()
    installed = types.ModuleType("timm")
    installed.__file__ = str(Path(sysconfig.get_paths()["purelib"], "timm.py"))
    monkeypatch.setitem(sys.modules, "timm", installed)
    assert "timm" in preload.imported()


def test_a_package_that_fails_is_left_to_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fail(name: str) -> None:
        asked.append(name)
        raise OSError("libjpeg is missing")

    monkeypatch.setattr(importlib, "import_module", fail)
    preload.preload(["torchvision", "os"])
    assert asked == ["torchvision"]


def test_each_package_is_taken_once_and_only_where_it_pays() -> None:
    packages = pool._Packages()
    packages.note(["einops", "mine"])
    assert not packages.due(pool.WORTH)
    assert packages.take(pool.WORTH) == ()
    assert packages.due(pool.WORTH + 1)
    assert packages.take(pool.WORTH + 1) == ("einops",)
    packages.note(["einops"])
    assert not packages.due(100)
    packages.note(["timm"])
    assert packages.take(100) == ("timm",)


def test_after_the_loss_of_a_server_none_is_taken() -> None:
    packages = pool._Packages(used=False)
    packages.note(["einops"])
    assert packages.take(100) == ()


def test_targets_find_it_there(tmp_path: Path) -> None:
    pytest.importorskip("einops")
    text = """\
import sys

there = "einops" in sys.modules

import einops
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.axis = -1 if there else -2

    def forward(self, x):
        q, k, v = einops.rearrange(self.qkv(x), "b t (n c) -> n b t c", n=3)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(self.axis)
        return self.out(weights @ v)
"""
    for number in range(8):
        (tmp_path / f"m{number}.py").write_text(text)
    settings = Settings(cwd=str(tmp_path))
    runner = Runner(Running(jobs=2, cache=False))
    report = runner.check([parse_target(".", cwd=str(tmp_path))], settings)
    found = ["MHA204" in [f.code for f in t.findings] for t in report.targets]
    assert found[0], json.dumps(found)
    assert found[3:] == [False] * 5
