"""Global state that a recording needs set, and that user code may leave changed: all put back."""

from __future__ import annotations

import gc
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from mha_lint.targets.seeds import seed_torch as seed_torch

SEED = 0
"""What recorded calls and their comparisons start from."""


def seeded(seed: int) -> None:
    """Start all generators that a module may draw from at `seed`."""
    seed_torch(seed)
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def _device_context() -> Any:
    """Return what ``torch.set_default_device`` last set; None if nothing."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


@contextmanager
def restored_state() -> Iterator[None]:
    """Put back seeds, default dtype and device, grad mode, threads and determinism flags."""
    numpy: Any = sys.modules.get("numpy")
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    device = _device_context()
    grad = torch.is_grad_enabled()
    generator, python = torch.get_rng_state(), random.getstate()
    numbers = numpy.random.get_state() if numpy is not None else None
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        if (
            torch.are_deterministic_algorithms_enabled() != deterministic
            or torch.is_deterministic_algorithms_warn_only_enabled() != warn_only
        ):
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if numbers is not None:
            numpy.random.set_state(numbers)
        random.setstate(python)
        torch.set_rng_state(generator)
        torch.set_grad_enabled(grad)
        if _device_context() is not device:
            torch.set_default_device(None if device is None else device.device)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


class _NoInference:
    """Stands in for inference mode, whose tensors have no version counter to see changes by."""

    def __init__(self, *_: object) -> None:
        """Take and ignore the mode."""

    def __enter__(self) -> _NoInference:
        """Enter nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Set the attribute `name` of `owner` to `value` for a while."""
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


def _no_override(*_: object) -> bool:
    return False


@contextmanager
def without_collection() -> Iterator[None]:
    """Hold off the garbage collector: a recording makes many objects that all stay alive."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def recordable() -> Iterator[None]:
    """Make all that a module computes visible to a function mode.

    The Python functions of torch.nn.functional ask ``has_torch_function`` whether to hand over
    whole; told no, they run, and their parts are recorded. The fused encoder path is switched off,
    compiled functions run eagerly, inference mode is neutral, warnings are silent.
    """
    with ExitStack() as stack:
        enter: list[AbstractContextManager[Any]] = [restored_state()]
        enter += [
            replaced(F, name, _no_override)
            for name in (
                "has_torch_function",
                "has_torch_function_unary",
                "has_torch_function_variadic",
            )
            if hasattr(F, name)
        ]
        enter.append(replaced(torch._C, "_InferenceMode", _NoInference))
        for context in enter:
            stack.enter_context(context)
        torch.backends.mha.set_fastpath_enabled(False)
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        # Importing the compiler costs more than all else here; without it nothing is compiled.
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the user's call is repeated; its warnings are no news
        stack.enter_context(torch.no_grad())
        yield
