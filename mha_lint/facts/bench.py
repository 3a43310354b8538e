"""One subject, recorded and found, ready to be measured at one size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.capture import Recording, Replay, random_parameters
from mha_lint.sites.dependence import Dependence
from mha_lint.sites.finder import Finder
from mha_lint.sites.site import Site
from mha_lint.sites.straighten import straighten

FEW = 3
"""A float input with at most this many different values is a mask or a flag and is kept."""
MANY = 64
"""Elements that are looked at first: all of a large image would take long."""


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
        """Find the sites of `recording`, which is straightened first."""
        straighten(recording)
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
    generator = torch.Generator().manual_seed(seed)
    out: list[Tensor] = []
    for old in recording.inputs:
        if not old.is_floating_point() or _has_few_values(old):
            out.append(old)
        else:
            anew = torch.randn(old.shape, generator=generator, dtype=torch.float64)
            # What was nowhere negative (sizes, probabilities) may meet a logarithm or a root.
            out.append(anew.abs() if bool((old >= 0).all()) else anew)
    return out


def _has_few_values(tensor: Tensor) -> bool:
    """Return whether `tensor` looks like a mask or a flag; a few elements tell most data apart."""
    start = tensor.flatten()[:MANY]
    if len(set(start.tolist())) > FEW:
        return False
    return len(set(tensor.flatten().tolist())) <= FEW
