"""A model with some of its layers left out: lists of modules that keep only what is needed of them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex

from torch import nn

LISTS = (nn.ModuleList, nn.Sequential)


class _Kept(nn.ModuleList):
    """A list that finds what it kept by place, while each module goes on under its own name."""

    def _get_abs_string_index(self, idx: SupportsIndex) -> str:
        return list(self._modules)[operator.index(idx)]


_Kept.__name__ = _Kept.__qualname__ = nn.ModuleList.__name__


@dataclass(frozen=True, slots=True)
class Shortening:
    """Of each list, by its path, how long it is and the places that are kept."""

    kept: tuple[tuple[str, int, tuple[int, ...]], ...]

    def of(self, module: Any) -> None:
        """Take out of `module` what is not kept; a list of another length is left as it is."""
        held = dict(module.named_modules())
        for path, length, places in self.kept:
            found = held.get(path)
            if found is None or type(found) not in LISTS or len(found._modules) != length:
                continue
            names = list(found._modules)
            for place, name in enumerate(names):
                if place not in places:
                    del found._modules[name]
            if type(found) is nn.ModuleList:
                found.__class__ = _Kept


def lists_in(module: nn.Module, least: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each list of at least `least` modules, and those of its elements.

    Lists within an element of another one are passed over.
    """
    found: list[str] = []
    for path, held in module.named_modules():
        if any(path.startswith(f"{outer}.") for outer in found):
            continue
        if type(held) in LISTS and len(held._modules) >= least:
            found.append(path)
            start = f"{path}." if path else ""
            yield path, [f"{start}{name}" for name in held._modules]
