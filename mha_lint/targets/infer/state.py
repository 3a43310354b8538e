"""One guess at everything that a build and a call need."""

from __future__ import annotations

import dataclasses

from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.scheme import Scheme

MASK_KINDS = ("true", "false", "ones", "zeros")


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One guess at everything. ``arguments``: constructor arguments that differ from the first
    guess; ``entries``: added config entries; ``inputs``: chosen inputs (None: the first options).
    """

    scheme: Scheme
    arguments: tuple[tuple[str, str], ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, InputGuess], ...] | None = None
    step: int = 0

    def with_argument(self, name: str, text: str) -> State:
        """Return the state with one constructor argument changed."""
        changed = {**dict(self.arguments), name: text}
        return dataclasses.replace(self, arguments=tuple(sorted(changed.items())))

    def with_input(self, name: str, guess: InputGuess) -> State:
        """Return the state with one input changed or added."""
        assert self.inputs is not None
        changed = {**dict(self.inputs), name: guess}
        return dataclasses.replace(self, inputs=tuple(changed.items()))
