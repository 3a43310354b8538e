"""What the code of a target is meant to be: the words for it, and who says so."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

EXPECTATIONS: tuple[str, ...] = (
    "causal",
    "bidirectional",
    "self",
    "cross",
    "mask=keep",
    "mask=hide",
    "scale=sqrt",
    "scale=none",
    "scale=mup",
    "normaliser=any",
    "gqa=blocked",
    "gqa=tiled",
    "over=batch",
    "no-output-projection",
)
"""All values of ``expect``: a key that holds, or a key with its value."""


def unknown_expectation(word: str) -> str:
    """Return the error for a word that is no expectation."""
    near = difflib.get_close_matches(word, EXPECTATIONS, n=2, cutoff=0.6)
    if near:
        return f"unknown expectation {word!r}; did you mean {' or '.join(near)}?"
    return f"unknown expectation {word!r}; it is one of {', '.join(EXPECTATIONS)}"


@dataclass(frozen=True, slots=True)
class ContractEntry:
    """One thing the code is meant to be, and who says so.

    ``source``: "stated", or what it was inferred from ("class name CausalSelfAttention"): then it
    is only as strong as a name is.
    """

    key: str
    value: bool | str
    source: str

    @property
    def stated(self) -> bool:
        """Return whether the user said so, rather than a name."""
        return self.source == "stated"


@dataclass(frozen=True, slots=True)
class Contract:
    """All that is known of what the code is meant to be, what was stated first."""

    entries: tuple[ContractEntry, ...] = ()

    def entry(self, key: str) -> ContractEntry | None:
        """Return the first entry of `key` that holds ("causal=no" does not), if there is one."""
        found = next((e for e in self.entries if e.key == key), None)
        return None if found is None or found.value in (False, "no", "false") else found

    def states(self, key: str, value: str | None = None) -> bool:
        """Return whether the user stated `key` (with `value`, where one is asked for)."""
        found = self.entry(key)
        return found is not None and found.stated and value in (None, found.value)

    def denies(self, key: str) -> bool:
        """Return whether the user stated that `key` does not hold."""
        found = next((e for e in self.entries if e.key == key), None)
        return found is not None and found.stated and self.entry(key) is None
