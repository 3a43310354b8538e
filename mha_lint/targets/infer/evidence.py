"""What was seen of each input of a ``forward``: votes, not certainties."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class InputEvidence:
    """What was seen of one input. Votes are (value, weight) sums.

    ``ranks``: numbers of axes; ``letters``: names of the axes where a shape was unpacked or a
    pattern given; ``last``: widths of the last axis; ``fixed``: other axes' lengths;
    ``indices``: rows of the table that it indexes; ``channels``: (axis, width);
    ``least_rank``: axes that are certainly there; ``added_to``: inputs that it is added to, as
    positions are; ``compared``: with a range, as lengths are; ``or_none``: it may be None;
    ``parts``: items that it is unpacked into; ``factor``: it is multiplied with something.
    """

    ranks: dict[int, float] = field(default_factory=dict)
    letters: list[tuple[str, ...]] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)
    fixed: dict[int, int] = field(default_factory=dict)
    indices: int | None = None
    integer: bool = False
    boolean: bool = False
    numeric_mask: bool = False
    as_mask: bool = False
    hides: dict[bool, float] = field(default_factory=dict)
    items: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    parts: int = 0
    iterated: bool = False
    added_to: set[str] = field(default_factory=set)
    additive_mask: bool = False
    compared: bool = False
    factor: bool = False
    or_none: bool = False
    least_rank: int = 0
    axis_names: dict[int, str] = field(default_factory=dict)

    def rank(self) -> int | None:
        """Return the number of axes with the most votes."""
        votes = {r: v for r, v in self.ranks.items() if r >= self.least_rank and v > 0}
        if votes:
            return max(votes, key=lambda r: votes[r])
        return self.least_rank if self.least_rank > 3 else None

    def width(self) -> int | None:
        """Return the width of the last axis with the most votes."""
        return max(self.last, key=lambda w: self.last[w]) if self.last else None

    def at_least(self, rank: int) -> None:
        """Note that there are at least `rank` axes."""
        self.least_rank = max(self.least_rank, rank)

    def vote_rank(self, rank: int, weight: float = 1.0) -> None:
        """Add a vote for `rank` axes."""
        self.ranks[rank] = self.ranks.get(rank, 0.0) + weight

    def vote_last(self, width: int, weight: float = 1.0) -> None:
        """Add a vote for the width of the last axis."""
        self.last[width] = self.last.get(width, 0.0) + weight


@dataclass(frozen=True, slots=True)
class Ref:
    """An input, or something made from it that still has its axes; ``whole``: its width too."""

    name: str
    whole: bool = True


_KIND = r"(?: ?\([^()\n]*\):)?"
"""The type of a parameter as docstrings write it: ``x (torch.Tensor): ...``."""


def parameter_names(tree: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool) -> list[str]:
    """Return the names of the parameters, without ``self`` when `bound`."""
    names = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
    if bound and names:
        names = names[1:]
    return names + [a.arg for a in tree.args.kwonlyargs]


def take_written_shapes(
    tree: ast.FunctionDef | ast.AsyncFunctionDef, found: dict[str, InputEvidence]
) -> None:
    """Take shapes from jaxtyping annotations and from the docstring: ``x: (B, T, C)``.

    `found`: the evidence on each parameter of `tree`.
    """
    for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
        match argument.annotation:
            case ast.Subscript(slice=ast.Tuple(elts=[_, ast.Constant(value=str(axes))])):
                letters = tuple(axes.lower().split())
                if argument.arg in found and letters and "..." not in letters:
                    found[argument.arg].vote_rank(len(letters), 4)
                    found[argument.arg].letters.append(letters)
            case _:
                pass
    text = ast.get_docstring(tree) or ""
    for name in found:
        for letters in _written(name, text):
            found[name].vote_rank(len(letters), 2)
            found[name].letters.append(letters)
            if letters[-1].isdigit():
                found[name].vote_last(int(letters[-1]))


def take_words(
    tree: ast.FunctionDef | ast.AsyncFunctionDef, found: dict[str, InputEvidence]
) -> None:
    """Take from the docstring which masks are added: ``mask: additive, 0 for valid``."""
    text = ast.get_docstring(tree) or ""
    for name, evidence in found.items():
        if re.search(rf"\b{re.escape(name)}\b{_KIND}[^\n]{{0,120}}\badditive\b", text):
            evidence.additive_mask = True


def _written(name: str, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the axes that `text` gives for `name`: ``x: (B, T, C)``, ``k, v: (b, h, d1, ..., dn, c)``,
    ``x: batch x length x dim``.
    """
    start = rf"\b{re.escape(name)}\b(?:, ?\w+)*{_KIND}"
    in_brackets = rf"{start}[^\n(\[]{{0,80}}[(\[]([A-Za-z_*#\d ,.']+)[)\]]"
    with_crosses = rf"(?m)^[\s*`-]*{start}:? [^\n]{{0,80}}?(?<!\w)(\w+(?: [x*] \w+)+)"
    found = [m[1].split(",") for m in re.finditer(in_brackets, text)]
    found += [re.split(" [x*] ", m[1]) for m in re.finditer(with_crosses, text)]
    for parts in found:
        letters = _one_of_many([part.strip(" #'").lower() for part in parts])
        if 2 <= len(letters) <= 5 and all(re.fullmatch(r"[\w* ]{1,20}", part) for part in letters):
            yield tuple(letters)


def _one_of_many(letters: list[str]) -> list[str]:
    """Return axes with one sequence axis for any number of them: ``d1, ..., dn`` is ``t``."""
    if "..." not in letters:
        return letters
    place = letters.index("...")
    before, after = letters[:place], letters[place + 1 :]
    stem = before[-1].rstrip("0123456789") if before else ""
    if stem and after and after[0].rstrip("nk") == stem and after[0] != before[-1]:
        before, after = before[:-1], after[1:]
    return [*before, "t", *after]
