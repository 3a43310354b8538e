"""One guess at everything that a build and a call need."""

from __future__ import annotations

import dataclasses

from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.scheme import Scheme

MASK_KINDS = ("true", "false", "ones", "zeros")


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One guess at everything.

    ``arguments``: constructor arguments that differ from the first guess; ``entries``: config
    entries that are added or differ; ``inputs``: chosen inputs (None: the first options);
    ``reached``: how far the call came before the last change, and ``largest``: the largest number
    of that error.
    """

    scheme: Scheme
    arguments: tuple[tuple[str, str], ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, InputGuess], ...] | None = None
    step: int = 0
    reached: tuple[int, ...] = dataclasses.field(default=(), compare=False)
    largest: int = dataclasses.field(default=0, compare=False)

    def with_argument(self, name: str, text: str) -> State:
        """Return the state with one constructor argument changed."""
        changed = {**dict(self.arguments), name: text}
        return dataclasses.replace(self, arguments=tuple(sorted(changed.items())))

    def with_config_entry(self, name: str, text: str) -> State:
        """Return the state with one config entry changed or added."""
        changed = {**dict(self.entries), name: text}
        return dataclasses.replace(self, entries=tuple(changed.items()), inputs=None)

    def with_input(self, name: str, guess: InputGuess) -> State:
        """Return the state with one input changed or added."""
        assert self.inputs is not None
        changed = {**dict(self.inputs), name: guess}
        return dataclasses.replace(self, inputs=tuple(changed.items()))

    def progress(self, place: tuple[int, ...], largest: int) -> float:
        """Return what it costs to go on from here: less when the call came further than before.

        `place`: how far it came; `largest`: the largest number of its error.
        """
        if not self.reached:
            return 0.0
        if place == self.reached:
            return 0.4 if largest > 2 * self.largest > 0 else 0.0
        return -0.4 if place > self.reached else 0.3
