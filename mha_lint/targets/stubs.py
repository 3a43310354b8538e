"""Stand-ins for packages that are not installed: importing them does no harm, using them says what
is missing.
"""

from __future__ import annotations

import dis
import functools
import re
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, NoReturn

import torch
from torch import nn

from mha_lint.targets.stand_ins import StandIn, base_like, layer_like, passes_on


class MissingPackageError(ImportError):
    """User code used something of a package that is not installed."""


class StubState:
    """Whether user code is still being loaded: until then stand-ins let themselves be called."""

    def __init__(self) -> None:
        """Begin in the loading state."""
        self.loading = True
        self.stubbed: list[str] = []
        self.said: list[str] = []
        """What stand-ins did in place of what is missing, as sentences."""


class Missing:
    """Any attribute of a stand-in module.

    It can be subclassed (as `nn.Module`), subscripted, used in annotations, and, while the module
    is loaded, applied as a decorator; every other use raises `MissingPackageError`.
    """

    def __init__(self, name: str, state: StubState, why: str = "", needs: str = "") -> None:
        """Stand for the dotted `name`; ``why``: the error of its import, if it was tried, and
        ``needs``: the package that it lacks.
        """
        self._mha_lint_name = name
        self._mha_lint_state = state
        self._mha_lint_why = why
        self._mha_lint_needs = needs if why else name.partition(".")[0]
        self._mha_lint_version: tuple[int, ...] | None = None

    def __getattr__(self, name: str) -> Missing:
        """Stand for an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._mha_lint_name}.{name}"
        return self._part(full)

    def _part(self, name: str) -> Missing:
        return Missing(name, self._mha_lint_state, self._mha_lint_why, self._mha_lint_needs)

    def __getitem__(self, _item: object) -> Missing:
        """Stand for a parametrised annotation."""
        return self

    def __or__(self, _other: object) -> Missing:
        """Stand for a union in an annotation."""
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Stand for a base class: as nn.Module, which most such bases are."""
        have = any(isinstance(base, type) and issubclass(base, nn.Module) for base in bases)
        missing = [base for base in bases if isinstance(base, Missing)]
        likes = [base_like(base._mha_lint_name) for base in missing]
        chosen = next((i for i, like in enumerate(likes) if like is not StandIn), 0)
        return () if have or missing[chosen] is not self else (likes[chosen],)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Pass a decorated function through while loading; refuse afterwards."""
        if (version := _version(args, kwargs)) is not None:
            parsed = self._part(f"{self._mha_lint_name}(...)")
            parsed._mha_lint_version = version
            return parsed
        if not self._mha_lint_state.loading:
            return self._called(args, kwargs)
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Missing):
            return _decorator(args[0]) if passes_on(args[0]) else args[0]
        return self._part(f"{self._mha_lint_name}(...)")

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what does in place of the call's result; refuse where something depends on it."""
        said, name = self._mha_lint_state.said, self._mha_lint_name
        after = _next_step(sys._getframe(2))
        absent = "its import failed" if self._mha_lint_why else "it is not installed"
        initialises = _initialises([*args, *kwargs.values()])
        if after == "POP_TOP" and (initialises or not self._mha_lint_why):
            said.append(f"{name}(...) does nothing: {absent}")
            return None  # a line that logs something: nothing depends on it
        if self._mha_lint_why:
            self._refuse()
        if after in _TESTS and not args and not kwargs:
            said.append(f"{name}() is taken to be False: {absent}")
            return False  # whether something is available, or running
        if (layer := layer_like(name, args, kwargs)) is not None:
            said.append(f"{name} is taken to be torch.nn.{type(layer).__name__}: {absent}")
            return layer
        self._refuse()

    def __lt__(self, other: object) -> bool:
        """Compare the versions that both stand for."""
        if not isinstance(other, Missing):
            return NotImplemented
        mine, others = self._mha_lint_version, other._mha_lint_version
        return NotImplemented if mine is None or others is None else mine < others

    def __le__(self, other: object) -> bool:
        """Compare the versions that both stand for."""
        if not isinstance(other, Missing):
            return NotImplemented
        mine, others = self._mha_lint_version, other._mha_lint_version
        return NotImplemented if mine is None or others is None else mine <= others

    def __bool__(self) -> bool:
        """Return False: what is missing is not there."""
        return False

    def __iter__(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def __instancecheck__(self, instance: object) -> bool:
        """Return False: of a class that is not there nothing is an instance.

        Unless it may stand among the bases of `instance`.
        """
        if isinstance(instance, StandIn):
            self._refuse()
        return False

    def _refuse(self) -> NoReturn:
        needs = self._mha_lint_needs
        if self._mha_lint_why:
            raise MissingPackageError(
                f"{self._mha_lint_name} is needed, but its import failed: {self._mha_lint_why}",
                name=needs,
            )
        raise MissingPackageError(
            f"{self._mha_lint_name} is needed, but {needs} is not installed", name=needs
        )


_TESTS = frozenset(
    {"TO_BOOL", "UNARY_NOT", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"}
    | {
        f"POP_JUMP_{way}_IF_{truth}"
        for way in ("FORWARD", "BACKWARD")
        for truth in ("TRUE", "FALSE")
    }
)
"""What Python does next with what it only tests, in the names of its versions."""


def _next_step(frame: FrameType) -> str:
    """Return what `frame` is about to do with the result of the call it makes."""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset > frame.f_lasti:
            return instruction.opname
    return ""


def _initialises(values: list[Any]) -> bool:
    """Tell whether a call with `values` can do no more than set weights."""
    plain = [v for v in values if isinstance(v, torch.Tensor) and not isinstance(v, nn.Parameter)]
    return not plain and any(isinstance(v, nn.Parameter | nn.Module) for v in values)


def _version(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the version that a call like ``parse("1.2.3+cpu")`` reads, None for any other call."""
    if len(args) != 1 or kwargs or not isinstance(args[0], str):
        return None
    found = re.match(r"v?(\d+(?:\.\d+)+)", args[0])
    return tuple(map(int, found[1].split("."))) if found is not None else None


def _decorator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a missing decorator makes of a function that is handed another one and its
    arguments: a decorator, which leaves what it decorates as it is.
    """

    @functools.wraps(function)
    def unchanged(*args: Any) -> Any:
        return args[-1]

    return unchanged


class StubModule(ModuleType):
    """A module that has every attribute, each `Missing`."""

    def __init__(self, name: str, state: StubState) -> None:
        """Stand for the module `name`."""
        super().__init__(name)
        self.__path__: list[str] = []
        self._mha_lint_state = state

    def __getattr__(self, name: str) -> Missing:
        """Stand for an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self._mha_lint_state)
