"""Axes of an input, written as symbols until a scheme gives them lengths.

"B" batch, "T" positions, "S" positions of a second sequence, "D" width, "h" heads, "d" head_dim,
"half" half of it, "H" and "W" an image, "HW" both flattened, "F" frames, "E" edges of a graph, "R"
distances between two positions.
"""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.words import words

Axes = tuple[str | int, ...]

BATCH_NAMES = words("""b bs bsz batch nb bz b_ batch_size bsize nbatches n_batch bn num_batches""")
LENGTH_NAMES = words(
    """t l n s seq seq_len len length tgt_len time q_len k_len num_tokens nt lq lk tq tk tokens
    seqlen seq_length sequence n_tokens i j m steps ts t_q t_k num_patches patches nodes n_q frames
    p src_len sequence_length lt ls time_steps window_area"""
)
WIDTH_NAMES = words(
    """c d e dim channels ch embed_dim hidden d_model emb feat features f hidden_size embed cin k
    dims n_embd nc width_ hid model_dim embedding_dim in_channels inner chan"""
)
HEAD_NAMES = words("h heads nh n_heads num_heads head")


def axis_sizes(scheme: Scheme, width: int, module: Any = None) -> dict[str, int]:
    """Return the length of each axis symbol, as far as the built module tells its own."""
    side = scheme.side
    across = side if scheme.square else side + 1
    heads, head_dim = _module_heads(module)
    heads = heads or scheme.heads
    batch = scheme.batch  # never as many as heads: a mask would fit onto these too
    if heads == batch > 1 and not _keeps_batch(module):
        batch += 2
    if head_dim is None:
        head_dim = scheme.head_dim if width == scheme.width else max(width // heads, 1)
    return {
        "B": batch, "T": scheme.length, "S": scheme.source, "D": width,
        "h": heads, "d": head_dim, "H": side, "W": across, "HW": side * across,
        "F": 2, "V": scheme.vocabulary, "g": scheme.kv_heads, "half": max(head_dim // 2, 1),
        "E": 2 * scheme.length, "R": 2 * scheme.length - 1,
    }  # fmt: skip


def _module_heads(module: Any) -> tuple[int | None, int | None]:
    """Return the head count and head_dim that the module or a part of it keeps as attributes."""
    heads: int | None = None
    head_dim: int | None = None
    for part in module.modules() if isinstance(module, nn.Module) else ():
        for name, value in vars(part).items():
            if type(value) is not int or value < 1:
                continue
            role = role_of(name)
            if role is Role.HEADS and heads is None:
                heads = value
            elif role is Role.HEAD_DIM and head_dim is None:
                head_dim = value
    return heads, head_dim


def _keeps_batch(module: Any) -> bool:
    """Tell whether the module or a part of it was made for a number of samples."""
    parts = module.modules() if isinstance(module, nn.Module) else ()
    return any(role_of(name) is Role.BATCH for part in parts for name in vars(part))


def named_axes(letters: tuple[str, ...], width: str | int, length: str) -> Axes | None:
    """Return the axes that the names in a shape unpacking stand for, or None."""
    plain = [re.sub(r"^(self\.|_+(?=\w))|[_\d]+$", "", letter) or "_" for letter in letters]
    kinds = []
    for letter in plain:
        if letter in BATCH_NAMES:
            kinds.append("B")
        elif letter in LENGTH_NAMES:
            kinds.append("T")
        elif letter in WIDTH_NAMES:
            kinds.append("D")
        else:
            kinds.append("?")
    if any(letter.isdigit() for letter in letters):
        return _numbered(letters, kinds, length)
    if len(letters) == 4:
        if set(plain[2:]) & {"h", "height", "hh", "x"} and kinds[1] in ("D", "?"):
            return ("B", width, "H", "W")
        if plain[1] in ("h", "height", "hh") and plain[2] in ("w", "width", "ww"):
            return ("B", "H", "W", width)
        if kinds[:2] == ["T", "B"] and plain[2] in HEAD_NAMES and kinds[3] == "D":
            return (length, "B", "h", "d")
        if plain[1] in HEAD_NAMES and kinds[3] == "D":
            return ("B", "h", length, "d")
        if plain[2] in HEAD_NAMES and kinds[3] == "D":
            return ("B", length, "h", "d")
        return None
    if len(letters) == 3:
        if kinds[0] == "T" and (kinds[1] == "B" or (plain[0] in "lst" and plain[1] == "n")):
            return (length, "B", width)
        if kinds[0] in ("B", "?") and kinds[1] == "D" and kinds[2] in ("T", "?"):
            return ("B", width, length)
        return ("B", length, width)
    if len(letters) == 2:
        return ("B", width) if kinds == ["B", "D"] else (length, width)
    return None


def _numbered(letters: tuple[str, ...], kinds: list[str], length: str) -> Axes | None:
    """Return the axes of a shape that was written with numbers: ``(batch, seq_len, 4, 4)``."""
    lengths: dict[str, str] = {"B": "B", "T": length}
    axes: list[str | int] = []
    for letter, kind in zip(letters, kinds, strict=True):
        if letter.isdigit():
            axes.append(int(letter))
        elif kind in lengths:
            axes.append(lengths[kind])
        else:
            return None
    return tuple(axes)


def is_time_first(letters: tuple[str, ...]) -> bool:
    """Tell whether a shape was unpacked as (T, B, D)."""
    return len(letters) == 3 and named_axes(letters, "D", "T") == ("T", "B", "D")


def three_names(axis_names: dict[int, str]) -> tuple[str, ...]:
    """Return names of three axes, of which at least the first two are known."""
    if 0 not in axis_names or 1 not in axis_names or max(axis_names) > 2:
        return ()
    return (axis_names[0], axis_names[1], axis_names.get(2, "_"))
