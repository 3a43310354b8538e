"""Mend what does not fit together in a config: default values often belong to different models."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mha_lint.targets.pretrained.leaves import Path, leaves, scopes
from mha_lint.targets.pretrained.roles import Role, role_of

FEWEST = 8
"""Smaller sizes say little: they stand for many things."""
_OUTER = ("out_hidden_size", "output_dim", "text_hidden_size", "output_hidden_size")
_FEATURES = re.compile(r"tokens:?\s*(\d+)[^\d]+features:?\s*(\d+)", re.IGNORECASE)
_DIFFER = (  # (wanted, there)
    re.compile(r"\(\d+x(?P<there>\d+) and (?P<wanted>\d+)x\d+\)"),
    re.compile(r"to have (?P<wanted>\d+) channels, but got (?P<there>\d+)"),
    re.compile(r"normalized_shape=\[(?P<wanted>\d+)\].*input of size\[\d+, (?P<there>\d+)"),
    re.compile(r"Expected size (?P<wanted>\d+) but got size (?P<there>\d+)"),
    re.compile(r"normalized_shape=\[(?P<wanted>\d+)\].*input of size\[.*, (?P<there>\d+)\]"),
    re.compile(r"tensor a \((?P<there>\d+)\) must match the size of tensor b \((?P<wanted>\d+)\)"),
)
_SPLIT = re.compile(r"sum exactly to (\d+).*split_sizes=\[(\d+(?:, \d+)+)\]")


@dataclass(frozen=True, slots=True)
class Mend:
    """``sections``: of a rotation, where the config leaves them open. ``sizes``: integers by path
    that follow another part's. Where there is neither, the parts' outer widths are joined."""

    sections: tuple[int, ...] = ()
    sizes: tuple[tuple[Path, int], ...] = ()


def mends(error: str) -> Iterator[Mend]:
    """Yield what may mend an error."""
    if (match := _SPLIT.search(error)) is not None:
        total = int(match[1])
        old = [int(n) for n in match[2].split(", ")]
        first = [max(1, n * total // sum(old)) for n in old]
        first[-1] += total - sum(first)
        if first[-1] > 0:
            yield Mend(tuple(first))
    if (match := _FEATURES.search(error)) is not None and match[1] == match[2]:
        yield Mend()


def joined(error: str, small: dict[str, Any]) -> Iterator[Mend]:
    """Yield what makes a size of a small config the one that another part delivers."""
    found = [x for x in leaves(small) if x.role in (Role.WIDTH, Role.HEAD_DIM, Role.KEEP)]
    for pattern in _DIFFER:
        if (match := pattern.search(error)) is None:
            continue
        wanted, there = int(match["wanted"]), int(match["there"])
        for old, new in ((wanted, there), (there, wanted)):
            paths = [x.path for x in found if x.value == old and min(old, new) >= FEWEST]
            if 1 < len(paths) < 6:
                yield from (Mend(sizes=((path, new),)) for path in paths)
            if paths:
                yield Mend(sizes=tuple((path, new) for path in paths))


def rotary(code: str, small: dict[str, Any]) -> Iterator[Mend]:
    """Yield sections for a rotation whose `code` asks for some, where the config has none."""
    asked = {k for k in re.findall(r"[\"'](\w+)[\"']", code) if role_of(k, 0) is Role.SECTION}
    for _, part in scopes(small):
        rope = part.get("rope_parameters") or part.get("rope_scaling")
        heads, width = part.get("num_attention_heads"), part.get("hidden_size")
        if not (isinstance(rope, dict) and isinstance(heads, int) and isinstance(width, int)):
            continue
        half = (part.get("head_dim") or width // heads) // 2
        if asked and not any(rope.get(key) for key in asked) and half > 2:
            found = re.search(rf"({'|'.join(asked)})[\"'], \[(\d+(?:, \d+)+)\]", code)
            usual = [int(n) for n in found[2].split(", ")] if found else [1, 1, 1]
            yield Mend(sections=_shared(half, usual))


def _shared(total: int, usual: list[int]) -> tuple[int, ...]:
    """Share `total` like `usual` is: equal ones stay equal, the odd one takes the rest."""
    shares = [max(1, n * total // sum(usual)) for n in usual]
    odd = next((i for i, n in enumerate(usual) if usual.count(n) == 1), 0)
    shares[odd] += total - sum(shares)
    return tuple(shares)


def mended(values: dict[str, Any], some: Iterable[Mend]) -> dict[str, Any]:
    """Return a copy of a config's dict, mended."""
    some = list(some)
    if not some:
        return values
    result = copy.deepcopy(values)
    text = result.get("text_config") or result
    width = text.get("hidden_size") if isinstance(text, dict) else None
    for mend in some:
        for where, size in mend.sizes:
            _put(result, where, size)
        for path, part in () if mend.sizes else scopes(result):
            if mend.sections:
                for key in ("rope_parameters", "rope_scaling"):
                    rope = part.get(key)
                    if isinstance(rope, dict) and "vision" not in str(path):
                        rope["mrope_section"] = list(mend.sections)
            elif part is not text and isinstance(width, int):
                part.update({key: width for key in _OUTER if isinstance(part.get(key), int)})
                if {"embed_dim", "hidden_size"} <= part.keys():  # the inner width has its own key
                    part["hidden_size"] = width
    return result


def with_room(values: dict[str, Any]) -> dict[str, Any]:
    """Return a config's dict whose vocabulary holds the tokens that stand for images and sounds."""
    text = values.get("text_config")
    part = text if isinstance(text, dict) else values
    size = part.get("vocab_size")
    tokens = [
        value
        for key, value in values.items()
        if key.startswith(("image_token", "video_token", "audio_token")) and isinstance(value, int)
    ]
    if not isinstance(size, int) or max(tokens, default=0) < size:
        return values
    result = copy.deepcopy(values)
    (result["text_config"] if part is text else result)["vocab_size"] = max(tokens) + 1
    return result


def _put(values: dict[str, Any], path: Path, size: int) -> None:
    """Replace an integer, if there still is one."""
    holder: Any = values
    try:
        for step in path[:-1]:
            holder = holder[step]
        if isinstance(holder[path[-1]], int):
            holder[path[-1]] = size
    except (KeyError, IndexError, TypeError):
        return
