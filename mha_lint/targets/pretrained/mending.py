"""Mend what does not fit together in a config: default values often belong to different models."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mha_lint.targets.pretrained.leaves import scopes

_OUTER = ("out_hidden_size", "output_dim", "text_hidden_size", "output_hidden_size")
_FEATURES = re.compile(r"tokens:?\s*(\d+)[^\d]+features:?\s*(\d+)", re.IGNORECASE)
_SPLIT = re.compile(r"sum exactly to (\d+).*split_sizes=\[(\d+(?:, \d+)+)\]")


@dataclass(frozen=True, slots=True)
class Mend:
    """``sections``: of a rotation, where the config leaves them open; else widths are joined."""

    sections: tuple[int, ...] = ()


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


def mended(values: dict[str, Any], some: Iterable[Mend]) -> dict[str, Any]:
    """Return a copy of a config's dict, mended."""
    some = list(some)
    if not some:
        return values
    result = copy.deepcopy(values)
    text = result.get("text_config") or result
    width = text.get("hidden_size") if isinstance(text, dict) else None
    for mend in some:
        for path, part in scopes(result):
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
