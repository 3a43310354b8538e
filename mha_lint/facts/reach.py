"""How far a subject is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """What is measured of a subject besides its own recorded call.

    ``branch``: it is a branch of another subject, on which other sizes and further branches were
    measured already. ``flips``: its flags are flipped to see what lies behind them. ``uncallable``:
    why it cannot be called again, if it cannot: what takes a call is open then. ``only_sizes``: masks,
    positions, groups and the like, which are the same at all sizes, are not measured.
    """

    branch: bool = False
    flips: bool = True
    uncallable: str = ""
    only_sizes: bool = False

    @property
    def called(self) -> bool:
        """Return whether the subject is made again at another size and behind its flags."""
        return not self.branch and not self.uncallable


WHOLE = Reach()
BRANCH = Reach(branch=True)
UNFLIPPED = Reach(flips=False)
