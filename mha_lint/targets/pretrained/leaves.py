"""The integers of a config: where each stands, what it counts, and a copy with other values."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mha_lint.targets.pretrained.roles import Role, role_of
from mha_lint.targets.words import words

Path = tuple[str | int, ...]

SKIPPED = words(
    """id2label label2id label_names transformers_version task_specific_params num_labels
    generation_config stage_names out_features"""
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One integer. ``scope``: the config (of model or part) that it belongs to."""

    path: Path
    scope: Path
    key: str
    value: int
    role: Role
    in_list: bool = False


def leaves(values: dict[str, Any]) -> list[Leaf]:
    """Return every integer of a config's dict, lists' items included."""
    found = list(_leaves(values, (), ()))
    widths = {(x.scope, x.value) for x in found if x.role is Role.WIDTH}
    return [_input_width(x) if (x.scope, x.value) in widths else x for x in found]


def _input_width(leaf: Leaf) -> Leaf:
    """Take the size of an input that is one of the part's widths for a width."""
    alike = leaf.role is Role.IMAGE and leaf.key.endswith("input_size")
    return replace(leaf, role=Role.WIDTH) if alike else leaf


def scopes(values: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each part's dict with its path. A dict without "model_type" belongs to what holds it."""
    yield path, values
    for key, value in values.items():
        if isinstance(value, dict):
            yield from (
                (p, v) for p, v in scopes(value, (*path, key)) if p != (*path, key) or _is_part(v)
            )


def lists(values: dict[str, Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield (key, list, holder) for the lists of one part, those of dicts within it included."""
    for key, value in values.items():
        if key in SKIPPED:
            continue
        if isinstance(value, list | tuple) and value:
            yield key, list(value), values
        elif isinstance(value, dict) and not _is_part(value):
            yield from lists(value)


def replaced(values: dict[str, Any], new: dict[Path, int]) -> dict[str, Any]:
    """Return a copy of `values` with the integers at some paths replaced."""
    result: dict[str, Any] = _listed(values)
    for path, value in new.items():
        holder: Any = result
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
    return result


def _listed(value: Any) -> Any:
    """Return a deep copy with lists for tuples."""
    if isinstance(value, dict):
        return {key: _listed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(one) for one in value]
    return copy.copy(value)


def _leaves(values: dict[str, Any], path: Path, scope: Path) -> Iterator[Leaf]:
    for key, value in values.items():
        if key in SKIPPED or not isinstance(key, str):
            continue
        here = (*path, key)
        if _is_whole(value):
            yield Leaf(here, scope, key, value, role_of(key, value))
        elif isinstance(value, list | tuple):
            for path_in, item in _items(value, here):
                yield Leaf(path_in, scope, key, item, role_of(key, item, True), True)
        elif isinstance(value, dict):
            yield from _leaves(value, here, here if _is_part(value) else scope)


def _items(value: list[Any] | tuple[Any, ...], path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the integers of a list, those of lists in it too, where it holds nothing else."""
    if all(map(_is_whole, value)):
        yield from (((*path, i), item) for i, item in enumerate(value))
    elif all(isinstance(one, list | tuple) for one in value):
        for index, one in enumerate(value):
            yield from _items(one, (*path, index))


def _is_part(value: dict[str, Any]) -> bool:
    return "model_type" in value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
