"""Reports as plain JSON values and back, each value checked against the type of its field.

What a worker sends was written by a process in which user code ran: it is read as data, never
unpickled, and refused where it is not of the form that the model states.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

DEEPEST = 40
"""Levels of nesting that a document may have; a report has 8."""


LARGEST = 1 << 63


class WireError(ValueError):
    """A document is not of the form that was asked for."""


def dump(value: object) -> bytes:
    """Return the dataclass `value` as one line of JSON."""
    return json.dumps(to_plain(value), separators=(",", ":")).encode()


def load(kind: type[T], document: bytes) -> T:
    """Return the `kind` that `document` holds.

    Raises:
        WireError: it is no JSON, or a value is missing, unknown or of another type.
    """
    try:
        plain = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise WireError(f"no JSON: {error}") from None
    return from_plain(kind, plain)


def to_plain(value: Any) -> Any:
    """Return `value` with dataclasses as objects, enums as their values, tuples as lists."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(one) for one in value]
    return value


def from_plain(kind: type[T], plain: object) -> T:
    """Return `plain` as a `kind`: a dataclass of this package's model, or a part of one.

    Raises:
        WireError: a value is missing, unknown or of another type.
    """
    value = _read(kind, plain, kind.__name__, 0)
    return typing.cast("T", value)


def _read(kind: Any, plain: object, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise WireError(f"{where}: nested too deeply")
    return _reader(kind)(plain, where, depth)


@functools.cache
def _reader(kind: Any) -> Callable[[object, str, int], Any]:
    """Return what reads a value of type `kind`."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return functools.partial(_union, typing.get_args(kind))
    if origin is tuple:
        return functools.partial(_tuple, typing.get_args(kind))
    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            return functools.partial(_enum, kind)
        if dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind, _namespace(kind))
            wanted = {f.name: hints[f.name] for f in dataclasses.fields(kind)}
            return functools.partial(_object, kind, wanted)
        if kind in (str, int, float, bool, types.NoneType):
            return functools.partial(_value, kind)
    raise TypeError(f"no reader for {kind!r}")


def _namespace(kind: type) -> dict[str, Any]:
    return vars(sys.modules[kind.__module__])


def _value(kind: type, plain: object, where: str, _depth: int) -> object:
    if kind is float and type(plain) is int:
        return float(plain)
    if type(plain) is not kind:
        raise WireError(f"{where}: {kind.__name__} expected, not {type(plain).__name__}")
    if type(plain) is int and abs(plain) >= LARGEST:
        raise WireError(f"{where}: a number of more than 63 bits")
    return plain


def _enum(kind: type[enum.Enum], plain: object, where: str, _depth: int) -> enum.Enum:
    try:
        return kind(plain)
    except ValueError:
        raise WireError(f"{where}: no {kind.__name__}") from None


def _union(kinds: tuple[Any, ...], plain: object, where: str, depth: int) -> object:
    for kind in kinds:
        try:
            return _read(kind, plain, where, depth)
        except WireError:
            continue
    raise WireError(f"{where}: {type(plain).__name__} not expected")


def _tuple(kinds: tuple[Any, ...], plain: object, where: str, depth: int) -> tuple[object, ...]:
    if not isinstance(plain, list):
        raise WireError(f"{where}: list expected, not {type(plain).__name__}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(kinds[0], one, where, depth + 1) for one in plain)
    if len(kinds) != len(plain):
        raise WireError(f"{where}: {len(kinds)} values expected, not {len(plain)}")
    return tuple(_read(k, one, where, depth + 1) for k, one in zip(kinds, plain, strict=True))


def _object(kind: type, wanted: dict[str, Any], plain: object, where: str, depth: int) -> object:
    if not isinstance(plain, dict):
        raise WireError(f"{where}: object expected, not {type(plain).__name__}")
    if plain.keys() != wanted.keys():
        odd = sorted(plain.keys() ^ wanted.keys())[0]
        raise WireError(f"{where}: {odd[:40]!r} is {'missing' if odd in wanted else 'unknown'}")
    return kind(**{k: _read(v, plain[k], f"{where}.{k}", depth + 1) for k, v in wanted.items()})
