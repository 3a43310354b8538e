"""One subject, recorded and found, ready to be measured at one size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.capture import Recording, Replay, random_inputs, random_parameters
from mha_lint.sites.dependence import Dependence
from mha_lint.sites.finder import Finder
from mha_lint.sites.site import Site

FEW = 3
"""A float input with at most this many different values is a mask or a flag and is kept."""


@dataclass(slots=True)
class Bench:
    """A recording with its sites and a float64 replay on random data to measure on.

    Weights are redrawn, since a gate or projection that starts at zero would hide what is behind
    it; inputs are redrawn unless they look like masks.
    """

    recording: Recording
    dependence: Dependence
    replay: Replay
    finder: Finder
    sites: list[Site]

    @classmethod
    def of(cls, recording: Recording, *, seed: int = 0) -> Bench:
        """Find the sites of `recording`."""
        dependence = Dependence(recording)
        replay = Replay(
            recording,
            inputs=measuring_inputs(recording, seed),
            parameters=random_parameters(recording, seed),
            seed=seed,
        )
        finder = Finder(dependence, replay)
        return cls(recording, dependence, replay, finder, finder.find())


def measuring_inputs(recording: Recording, seed: int) -> list[Tensor]:
    """Return inputs to measure on: floats redrawn at unit scale, masks and integers as recorded."""
    drawn = random_inputs(recording, seed)
    generator = torch.Generator().manual_seed(seed)
    out: list[Tensor] = []
    for old, _new in zip(recording.inputs, drawn, strict=True):
        if (
            not old.is_floating_point()
            or old.numel() == 0
            or len(set(old.flatten().tolist())) <= FEW
        ):
            out.append(old)
        else:
            out.append(torch.randn(old.shape, generator=generator, dtype=torch.float64))
    return out
