"""The import of torch: what it leaves of the process as it was."""

from __future__ import annotations

import gc
import os

import pytest

from mha_lint.engine.load import load_engine


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_goes_on_as_it_did(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_JIT", "1")
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        engine = load_engine()
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()
    assert engine.__name__ == "mha_lint.engine"
    assert os.environ["PYTORCH_JIT"] == "0"
