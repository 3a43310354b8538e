"""Stand-ins for packages that are not installed: importing them does no harm, using them says what
is missing.
"""

from __future__ import annotations

import dis
import sys
from types import FrameType, ModuleType
from typing import Any, NoReturn

from torch import nn


class MissingPackageError(ImportError):
    """User code used something of a package that is not installed."""


class StubState:
    """Whether user code is still being loaded: until then stand-ins let themselves be called."""

    def __init__(self) -> None:
        """Begin in the loading state."""
        self.loading = True
        self.stubbed: list[str] = []
        self.skipped: list[str] = []
        """What was called for its effect alone, and did nothing."""


class Missing:
    """Any attribute of a stand-in module.

    It can be subclassed (as `nn.Module`), subscripted, used in annotations, and, while the module
    is loaded, applied as a decorator; every other use raises `MissingPackageError`.
    """

    def __init__(self, name: str, state: StubState, why: str = "") -> None:
        """Stand for the dotted `name`; ``why``: the error of its import, if it was tried."""
        self._mha_lint_name = name
        self._mha_lint_state = state
        self._mha_lint_why = why

    def __getattr__(self, name: str) -> Missing:
        """Stand for an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._mha_lint_name}.{name}"
        return Missing(full, self._mha_lint_state, self._mha_lint_why)

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
        return () if have else (nn.Module,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Pass a decorated function through while loading; refuse afterwards."""
        if not self._mha_lint_state.loading:
            if not self._mha_lint_why and _drops_result(sys._getframe(1)):
                self._mha_lint_state.skipped.append(self._mha_lint_name)
                return None  # a line that logs something: nothing depends on it
            self._refuse()
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Missing):
            return args[0]  # a decorator
        return Missing(f"{self._mha_lint_name}(...)", self._mha_lint_state, self._mha_lint_why)

    def __bool__(self) -> bool:
        """Return False: what is missing is not there."""
        return False

    def __iter__(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def __instancecheck__(self, _instance: object) -> NoReturn:
        """Refuse: what is missing has no instances that could be told."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        package = self._mha_lint_name.partition(".")[0]
        if self._mha_lint_why:
            raise MissingPackageError(
                f"{self._mha_lint_name} is needed, but its import failed: {self._mha_lint_why}",
                name=package,
            )
        raise MissingPackageError(
            f"{self._mha_lint_name} is needed, but {package} is not installed", name=package
        )


def _drops_result(frame: FrameType) -> bool:
    """Tell whether `frame` is about to throw away the result of the call it makes."""
    after = [i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti]
    return bool(after) and after[0].opname == "POP_TOP"


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
