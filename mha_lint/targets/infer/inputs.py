"""Guess the arguments of one call, from names, the body of ``forward`` and the built module."""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import nn

from mha_lint.targets.infer.axes import Axes, axis_sizes, is_time_first, named_axes, three_names
from mha_lint.targets.infer.evidence import InputEvidence
from mha_lint.targets.infer.forward import forward_evidence
from mha_lint.targets.infer.guesses import InputGuess, render_input
from mha_lint.targets.infer.input_names import (
    BIAS,
    CACHE,
    COSINE,
    CROSS,
    EDGES,
    FLAG,
    HALF,
    IDS,
    KINDS,
    LENGTHS,
    MASK,
    OF_EDGES,
    PAIRS,
    POSITIONS,
    QKV,
    ROTARY,
    SIZE_NAMES,
    SIZES,
    TARGET,
    TIME,
)
from mha_lint.targets.infer.keywords import asked_keywords
from mha_lint.targets.infer.masks import mask_options, mask_part
from mha_lint.targets.infer.module_needs import module_width
from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.words import words

_PAIRS = words("hw h_w size sizes spatial_shape spatial_size spatial_shapes")
_INTS = re.compile(r"(tuple|list|sequence|size)[._\w]*\[int|Size_?\b", re.IGNORECASE)
_PAIRS_OF_INTS = re.compile(r"\[[\w.]*(tuple|list)\[int", re.IGNORECASE)
PATCHES = 4
"""Patches along each side of an image of which only the patch size is known."""


def image_sides(numbers: dict[str, int]) -> tuple[int, ...]:
    """Return the sides of square images that a construction with these numbers may want."""
    stated = [n for name, n in numbers.items() if role_of(name) is Role.SIDE and n > 1]
    patches = [PATCHES * n for name, n in numbers.items() if role_of(name) is Role.PATCH and n > 1]
    return tuple(dict.fromkeys(stated + patches))


class Inputs:
    """Guesses for the arguments of one call of `made`; ``width``: d_model, if it is known."""

    def __init__(self, made: Any, scheme: Scheme, width: int | None = None) -> None:
        """Read the forward of `made`."""
        self.made, self.scheme = made, scheme
        self._sizes: dict[Scheme, dict[str, int]] = {}
        self.is_module = isinstance(made, nn.Module)
        function = made.forward if self.is_module else made
        self.parameters = list(parameters_of(function))
        self.asked = asked_keywords(function)
        keyword = inspect.Parameter.KEYWORD_ONLY
        self.parameters += [inspect.Parameter(name, keyword) for name in self.asked]
        try:
            kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):
            kinds = []
        self.takes_any = inspect.Parameter.VAR_POSITIONAL in kinds
        self.evidence = forward_evidence(made)
        self.width = width or (module_width(made) if self.is_module else None) or scheme.width
        self.images: tuple[int, ...] = ()
        """Sides that an image may need, for when the guess is refused."""
        self.names = [p.name for p in self.parameters]
        lower = {n.lower() for n in self.required()}
        sides = {"h", "w"} <= lower or {"height", "width"} <= lower
        self.length = "HW" if sides or any(map(self._is_side_pair, self.parameters)) else "T"
        self.graph = any(EDGES.match(n.lower()) for n in self.names)
        self.time_first = getattr(made, "batch_first", None) is False or any(
            is_time_first(letters)
            for seen in self.evidence.values()
            for letters in [*seen.letters, three_names(seen.axis_names)]
        )

    def sizes_at(self, scheme: Scheme) -> dict[str, int]:
        """Return the length of each axis symbol at `scheme`."""
        if scheme not in self._sizes:
            self._sizes[scheme] = axis_sizes(scheme, self.width, self.made)
        return self._sizes[scheme]

    def required(self) -> list[str]:
        """Return the parameters to fill: those without a default, else the first, or what ``*args`` take."""
        names = [p.name for p in self.parameters if p.default is p.empty]
        if not names and self.parameters and not self.takes_any:
            names = self.names[:1]
        return names

    def certain_rank(self, name: str) -> int | None:
        """Return the number of axes that the body of forward unpacks `name` into, if it does."""
        seen = self.evidence.get(name, InputEvidence())
        rank = seen.rank()
        return rank if rank is not None and seen.ranks.get(rank, 0.0) >= 3 else None

    def _is_side_pair(self, parameter: inspect.Parameter) -> bool:
        """Tell whether `parameter` takes the two sides of an image whose pixels are in a row."""
        seen = self.evidence.get(parameter.name, InputEvidence())
        plain = not seen.ranks and not seen.last and parameter.default is parameter.empty
        lower = parameter.name.lower()
        named = role_of(lower) is Role.SIDE or lower in _PAIRS
        return (
            plain and named and (bool(_INTS.search(str(parameter.annotation))) or seen.parts == 2)
        )

    def render(self, chosen: dict[str, InputGuess], scheme: Scheme, dtype: str) -> str:
        """Return the arguments of the call as an expression."""
        sizes = self.sizes_at(scheme)
        parts, in_row = [], True
        for parameter in self.parameters:
            if parameter.name not in chosen:
                in_row = False
                continue
            text = render_input(chosen[parameter.name], sizes, dtype)
            plain = in_row and parameter.kind is not parameter.KEYWORD_ONLY
            parts.append(text if plain else f"{parameter.name}={text}")
        if not parts and self.takes_any:
            guess = chosen.get("*", InputGuess("float", ("B", "T", "D")))
            parts.append(render_input(guess, sizes, dtype))
        return ", ".join(parts)

    def options(self, name: str) -> list[InputGuess]:
        """Return ways to make the argument `name`, the likeliest first."""
        seen = self.evidence.get(name, InputEvidence())
        found = self._options(name, seen)
        if name in self.asked and seen.or_none:
            found.insert(0, InputGuess("text", text="None"))
        return list(dict.fromkeys(found))

    def _options(self, name: str, seen: InputEvidence) -> list[InputGuess]:
        lower = name.lower()
        parameter = next((p for p in self.parameters if p.name == name), None)
        annotation = str(parameter.annotation) if parameter is not None else ""
        if "bool" in annotation or (FLAG.match(lower) and not seen.ranks and not seen.as_mask):
            return [InputGuess("text", text="False"), InputGuess("text", text="True")]
        if self.graph and (found := self._in_graph(name, lower, seen)):
            return found
        if annotation in ("<class 'int'>", "int"):
            return self._size(lower)
        if parameter is not None and self._is_side_pair(parameter):
            return self._sides(annotation)
        if annotation in ("<class 'float'>", "float"):
            return [InputGuess("text", text="1.0")]
        if seen.items:
            keys = tuple(sorted(seen.items))
            return [InputGuess("dict", keys=keys, parts=tuple(self._part(k) for k in keys))]
        if seen.attributes - {"tensor_split"}:
            keys = tuple(sorted(seen.attributes))
            made = InputGuess("object", keys=keys, parts=tuple(self._part(k) for k in keys))
            return [InputGuess("text", text="None"), made] if seen.or_none else [made]
        is_list = any(word in annotation.lower() for word in ("list", "sequence", "tuple"))
        if seen.integer:
            rank = seen.rank() or 2
            high = seen.indices or self.scheme.vocabulary
            axes: Axes = ("B", "T") if rank == 2 else ("T",) if rank == 1 else ("B", "T", 1)
            if self._is_cross(lower):
                axes = tuple("S" if a == "T" else a for a in axes)
            ids = InputGuess("ids", axes, high=min(high, 29))
            if POSITIONS.search(lower):
                return [InputGuess("positions", axes), ids]
            single = [ids.with_axes((a,)) for a in ("T", "B")]
            return [ids, *single, InputGuess("float", ("B", "T", "D"))]
        counts = LENGTHS.search(lower) or (seen.compared and not seen.last)
        if counts and (seen.rank() or 1) == 1:
            symbol = "S" if self._is_cross(lower) or self._has_cross() else "T"
            return [InputGuess("lengths", ("B",), text=symbol), *self._size(lower)]
        if lower.endswith("_len") and not SIZES.match(lower) and not seen.last:
            lengths = InputGuess("lengths", ("B",), text="T")
            return [lengths, *self._floats(lower, seen)]
        if seen.as_mask or (MASK.search(lower) and not seen.last):
            masks = mask_options(lower, seen, self._keys(lower))
            if f"{name}[0]" in self.evidence and not seen.ranks:
                kinds = [self.evidence.get(f"{name}[{i}]") for i in range(seen.parts)]
                held = [mask_part(k, masks[0], self._keys(lower)) for k in kinds if k is not None]
                masks.insert(0, InputGuess("tuple", parts=tuple(held)))
            known = seen.hides or seen.boolean or seen.numeric_mask or seen.additive_mask
            optional = "None" in annotation or "Optional" in annotation
            # a mask of unknown polarity would be a guess, and a wrong one looks like a fault
            return masks if known or not optional else [InputGuess("text", text="None"), *masks]
        if CACHE.search(lower) and not (seen.letters and seen.last):
            one = InputGuess("float", ("B", "h", "S", "d"))
            pair = InputGuess("tuple", parts=(one, one))
            none = InputGuess("text", text="None")
            return [one, pair, none] if HALF.search(lower) else [pair, none, one]
        if ROTARY.search(lower) and seen.parts < 2:
            return self._rotary(lower)
        placed = ROTARY.search(lower) or POSITIONS.search(lower)
        if seen.parts > 1 and not seen.ranks and not seen.last and (placed or not is_list):
            part = InputGuess("float", ("B", "T", "d")) if placed else self._floats(lower, seen)[0]
            parts = tuple(self._unpacked(name, seen, i, part) for i in range(seen.parts))
            return [InputGuess("tuple", parts=parts), *self._floats(lower, seen)]
        added = bool(seen.added_to & set(self.names))
        if POSITIONS.search(lower) and not seen.last and not seen.ranks.get(3) and not added:
            return [
                InputGuess("positions", ("B", "T")),
                InputGuess("positions", ("T",)),
                InputGuess("float", ("B", "T", "D")),
                InputGuess("float", (1, "T", "D")),
            ]
        plain = not seen.ranks and not seen.last and not seen.channels
        if SIZES.match(lower) and plain and (len(lower) > 1 or name in self.names[1:]):
            return self._size(lower)
        if BIAS.search(lower) and not seen.last and not added:
            return [InputGuess("zeros", axes) for axes in (("h", "T", "T"), ("B", "h", "T", "T"),
                    (1, "h", "T", "T"), ("T", "T"))]  # fmt: skip
        floats = self._floats(lower, seen)
        if PAIRS.search(lower) and not seen.last and not seen.channels:
            floats = [InputGuess("float", axes) for axes in (("B", "T", "T"), ("T", "T"),
                      ("B", "h", "T", "T"), ("B", 1, "T", "T"))] + floats  # fmt: skip
        if (BIAS.search(lower) or POSITIONS.search(lower)) and len(floats[0].axes) == 3:
            width = floats[0].axes[-1]
            floats[1:1] = [InputGuess("float", (b, "R", width)) for b in (1, "B")]
        if seen.iterated or is_list:
            count = max(seen.parts, 2)
            parts = tuple(self._unpacked(name, seen, i, floats[0]) for i in range(count))
            listed = InputGuess("tuple" if "tuple" in annotation.lower() else "list", parts=parts)
            return [listed, *floats] if is_list or not seen.ranks else [*floats, listed]
        if IDS.search(lower) and not seen.last and not seen.ranks.get(3):
            ids = InputGuess("ids", ("B", "T"), high=5)
            return [ids, *floats]
        if TIME.match(lower) and not seen.ranks:
            return [InputGuess("float", ("B", "D")), InputGuess("ids", ("B",), high=10), *floats]
        return floats

    def _unpacked(
        self, name: str, seen: InputEvidence, index: int, usual: InputGuess
    ) -> InputGuess:
        """Return the guess for a part that an input is unpacked into; `usual`: of nothing known."""
        part = self.evidence.get(f"{name}[{index}]", InputEvidence())
        if part.or_none:
            return InputGuess("text", text="None")
        if not (part.letters or part.ranks or part.last or part.integer):
            return usual
        if part.integer:
            return InputGuess("ids", ("B", "T"), high=min(part.indices or 5, 29))
        return self._floats(name.lower(), part)[0]

    def _in_graph(self, name: str, lower: str, seen: InputEvidence) -> list[InputGuess]:
        """Return guesses where nodes and edges are rows: ``x`` (T, D), ``edge_index`` (2, E)."""
        width: str | int = seen.width() or "D"
        if EDGES.match(lower):
            return [InputGuess("edges", (2, "E"))]
        if OF_EDGES.match(lower):
            kinds = InputGuess("ids", ("E",), high=2)
            floats = [InputGuess("float", axes) for axes in (("E", width), ("E", 1), ("E",))]
            return [kinds, *floats] if KINDS.search(lower) else [*floats, kinds]
        if lower in ("batch", "batch_index", "batch_idx"):
            return [InputGuess("ids", ("T",), high=1)]
        if name == self.names[0]:
            nodes = InputGuess("float", ("T", width))
            return [
                nodes,
                InputGuess("tuple", parts=(nodes, nodes)),
                nodes.with_axes(("B", "T", width)),
            ]
        return []

    def _part(self, key: str) -> InputGuess:
        """Return the guess for an entry of a dict or object input."""
        lower = key.lower()
        if MASK.search(lower):
            return InputGuess("true", ("B", "T"))
        if IDS.search(lower):
            return InputGuess("ids", ("B", "T"), high=5)
        return InputGuess("float", ("B", "S" if self._is_cross(lower) else "T", "D"))

    def _size(self, lower: str) -> list[InputGuess]:
        symbol = next((s for s, names in SIZE_NAMES.items() if lower in names), None)
        if lower in ("hw", "h_w", "size"):
            pair = InputGuess(
                "tuple", parts=(InputGuess("size", text="H"), InputGuess("size", text="W"))
            )
            return [pair, InputGuess("size", text="T")]
        if symbol is None:
            return [InputGuess("text", text="0"), InputGuess("text", text="1")]
        return [InputGuess("size", text=symbol), InputGuess("text", text="1")]

    def _sides(self, annotation: str) -> list[InputGuess]:
        """Return the sides of an image, or those of each of several images."""
        kind = "list" if "list" in annotation.lower() else "tuple"
        pair = (InputGuess("size", text="H"), InputGuess("size", text="W"))
        if _PAIRS_OF_INTS.search(annotation):
            both = (InputGuess("tuple", parts=pair),)
            return [InputGuess("list", parts=both * 2), InputGuess("list", parts=both)]
        return [InputGuess(kind, parts=pair), InputGuess("size", text="T")]

    def _is_cross(self, lower: str) -> bool:
        """Tell whether an input of this name may have a length of its own."""
        first = self.names[0].lower() if self.names else ""
        if lower == first:
            return False
        if lower.startswith("src"):
            return any(TARGET.match(n) for n in self.names)
        return bool(CROSS.search(lower))

    def _has_cross(self) -> bool:
        return any(self._is_cross(n.lower()) for n in self.required() if not MASK.search(n.lower()))

    def _keys(self, lower: str) -> str:
        """Return the axis that a mask of this name hides positions of."""
        cross = self._is_cross(lower) or (self._has_cross() and not TARGET.match(lower))
        return "S" if cross else "T"

    def _rotary(self, lower: str) -> list[InputGuess]:
        complexes = InputGuess("polar", ("T", "half"))
        angles = [InputGuess("float", axes) for axes in (("T", "d"), ("T", "half"), ("B", "T", "d"),
                  (1, 1, "T", "d"), ("B", 1, "T", "d"))]  # fmt: skip
        pair = [InputGuess("tuple", parts=(a, a)) for a in angles]
        if "cis" in lower:
            return [complexes, *angles]
        if COSINE.search(lower):
            return angles
        return [angles[1], angles[0], complexes, *pair]

    def _floats(self, lower: str, seen: InputEvidence) -> list[InputGuess]:
        length = "S" if self._is_cross(lower) else self.length
        width: str | int = seen.width() or "D"
        named = [*seen.letters, three_names(seen.axis_names)]
        if (
            QKV.match(lower) and not seen.last
        ):  # what tells the layout of one of them tells that of all
            beside_it = [
                e for n, e in self.evidence.items() if QKV.match(n.lower()) and e is not seen
            ]
            named += [letters for e in beside_it for letters in e.letters if len(letters) == 4]
        shapes = [named_axes(letters, width, length) for letters in named if letters]
        found = [shape for shape in shapes if shape is not None]
        rank = seen.rank()
        split = False
        if QKV.match(lower):  # q, k and v have as many axes, unless one is told apart
            alike = [e.rank() or 0 for n, e in self.evidence.items() if QKV.match(n.lower())]
            split = max(alike, default=0) == 4
            votes = seen.ranks.get(rank or 0, 0.0)
            if votes < (3 if seen.letters else 2):
                rank = max([rank or 0, *alike]) or None
        if self.time_first and rank in (None, 3):
            stated = getattr(self.made, "batch_first", None) is False
            found.insert(0 if stated else len(found), (length, "B", width))
        found = [f for f in found if rank is None or len(f) == rank]
        if split and rank == 3 and not seen.last and not found:  # one head of keys for all queries
            found.append(("B", length, "d"))
        channels = seen.channels.get(1)
        others = [e.rank() for n, e in self.evidence.items() if n.lower() != lower]
        beside = lower != self.names[0].lower() or any(r in (3, 4) for r in others)
        by_rank: dict[int, list[Axes]] = {
            1: [(length,), ("D",), ("B",)],
            2: [("B", width), (length, width)] if beside else [(length, width), ("B", width)],
            3: [("B", length, width)],
            4: [("B", length, "F", width), ("B", "H", "W", width), ("B", width, "H", "W")],
            5: [("B", width, "F", "H", "W"), ("B", "F", "H", "W", width)],
        }
        if channels is not None:
            by_rank[3] = [("B", channels, length)]
            by_rank[4] = [("B", channels, "H", "W")]
            by_rank[5] = [("B", channels, "F", "H", "W")]
            rank = rank if rank in (3, 4, 5) else 4
        if not self.is_module and QKV.match(lower):
            heads: Axes = ("B", "h", length, "d")
            by_rank[4].insert(0, heads)
            rank = rank or 4
        elif QKV.match(lower) and not seen.last:
            by_rank[4].insert(0, ("B", "h", length, "d"))
            by_rank[4].append((length, "B", "h", "d"))
        for axis, size in seen.fixed.items():
            for shape in by_rank.get(rank or 3, [])[:1]:
                if axis < len(shape) - 1 and channels is None:
                    changed = (*shape[:axis], size, *shape[axis + 1 :])
                    by_rank[rank or 3].insert(0, changed)
        order: list[int] = [rank] if rank is not None and rank in by_rank else []
        order += [r for r in (3, 4, 2, 5, 1) if r != rank]
        found += [shape for r in order for shape in by_rank[r]]
        return [InputGuess("float", shape) for shape in found]
