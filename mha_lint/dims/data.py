"""What the diagnosis is made of: tensors, facts about head sizes, and what was found. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mha_lint.model.printable import printable

Status = Literal["solved", "open", "contradictory", "not read"]

NAMES = {
    "d_model": "d_model",
    "h": "num_heads",
    "h_kv": "num_kv_heads",
    "d_k": "head_dim",
    "d_v": "v_head_dim",
    "nope": "qk_nope_head_dim",
    "rope": "qk_rope_head_dim",
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
}
"""The unknowns by their short name, and how sentences call them."""
LARGEST = 1 << 36
"""Sizes are smaller: a hostile file's numbers may have thousands of digits, or take hours to divide."""


class SourceError(Exception):
    """A source that cannot be read; the text names it and says why."""

    def __init__(self, text: str) -> None:
        """Say it in one line, whatever the file holds."""
        super().__init__(printable(text))


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a checkpoint: its shape, and its dtype as the file spells it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of one or more files.

    ``slices``: how many files hold a slice of each projection (model-parallel checkpoints), else 1.
    """

    label: str
    tensors: dict[str, Tensor]
    slices: int = 1


@dataclass(frozen=True, slots=True)
class Equation:
    """A sum of products of unknowns that equals `value`; each term is (coefficient, unknowns)."""

    terms: tuple[tuple[int, tuple[str, ...]], ...]
    value: int

    @property
    def unknowns(self) -> tuple[str, ...]:
        """Return the unknowns in order of appearance."""
        return tuple(dict.fromkeys(name for _, names in self.terms for name in names))

    @property
    def stated(self) -> str | None:
        """Return the unknown that is simply given a value here, or None."""
        if len(self.terms) == 1 and self.terms[0][0] == 1 and len(self.terms[0][1]) == 1:
            return self.terms[0][1][0]
        return None

    def text(self, known: dict[str, int] | None = None) -> str:
        """Return the left side in words, with the numbers of `known` in place of their names."""
        known = known or {}
        parts = []
        for coefficient, names in self.terms:
            factors = [str(known[n]) if n in known else NAMES[n] for n in names]
            if coefficient != 1:
                factors.insert(0, str(coefficient))
            parts.append(" x ".join(factors))
        return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class Divides:
    """`divisor` divides `multiple`."""

    divisor: str
    multiple: str

    @property
    def unknowns(self) -> tuple[str, ...]:
        """Return both unknowns."""
        return (self.divisor, self.multiple)


Relation = Equation | Divides


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation and where it comes from.

    ``source``: a tensor's name or "config num_key_value_heads"; ``says``: the source with its own
    numbers. ``kind``: read from a shape, stated by a config, or only taken for likely.
    """

    source: str
    says: str
    relation: Relation
    kind: Literal["shape", "stated", "likely"] = "shape"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Sources that cannot all be right, in one sentence with their numbers."""

    message: str
    sources: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to cut the widths into heads that all shapes allow."""

    sizes: dict[str, int]
    usual: bool


@dataclass(slots=True)
class Group:
    """The attention of all layers that are alike.

    ``where``: their modules ("layers.0-31.self_attn") or the section of a config. ``sizes``: the
    unknowns that are known, by their short names; ``kv_width``: the width that keys and values are
    made from, where it is not d_model.
    """

    where: str
    count: int
    layout: str
    status: Status = "not read"
    sizes: dict[str, int] = field(default_factory=dict)
    kv_width: int | None = None
    candidates: tuple[Candidate, ...] = ()
    tensors: tuple[str, ...] = ()
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read, or why it was not."""

    path: str
    kind: str
    detail: str


@dataclass(slots=True)
class DimsReport:
    """All that `mha-lint dims` found."""

    sources: list[Source] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return 0 for consistent, 1 for a contradiction, 2 for nothing found."""
        if self.contradictions:
            return 1
        return 0 if any(g.status != "not read" for g in self.groups) else 2
