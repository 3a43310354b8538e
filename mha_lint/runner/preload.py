"""Installed packages that take long to import: once in the server, if the targets need them anyway."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import sysconfig
import warnings
from collections.abc import Collection, Sequence
from typing import Any

PRELOADED: tuple[str, ...] = (
    "accelerate",
    "diffusers",
    "einops",
    "lightning",
    "matplotlib",
    "matplotlib.pyplot",
    "pandas",
    "pytorch_lightning",
    "scipy",
    "sklearn",
    "timm",
    "torchaudio",
    "torchvision",
    "transformers",
    "transformers.modeling_utils",
)
"""Packages that many import, that only define things, and that leave a GPU alone meanwhile."""


def preloadable(names: Collection[str]) -> tuple[str, ...]:
    """Return those of `names` that the server may import, in a fixed order."""
    return tuple(name for name in PRELOADED if name in names)


def imported() -> tuple[str, ...]:
    """Return which packages of the list this process has imported, from where packages are installed."""
    homes = tuple(sysconfig.get_paths()[k] for k in ("purelib", "platlib"))
    return tuple(
        name
        for name in PRELOADED
        if str(getattr(sys.modules.get(name), "__file__", None) or "").startswith(homes)
    )


def preload(names: Sequence[str]) -> None:
    """Import `names`; what cannot be imported is left to those who need it."""
    torch: Any = sys.modules["torch"]  # the server has it; what else knows the list has not
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    for name in preloadable(names):
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    gc.collect()
    gc.freeze()
