"""One subject, recorded and found, ready to be measured at one size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Recording, Replay, random_parameters
from mha_lint.sites.dependence import Dependence, is_tensor, shape
from mha_lint.sites.finder import DATA_ERRORS, Finder
from mha_lint.sites.handed_weights import take_weights
from mha_lint.sites.levels import without_levels
from mha_lint.sites.site import Site
from mha_lint.sites.straighten import straighten

FEW = 3
"""A float input with at most this many different values is a mask or a flag and is kept."""
INSTEAD = 1e30
"""In the place of an infinity: far beyond any score, and no NaN when multiplied by 0."""
MANY = 64
"""Elements that are looked at first: all of a large image would take long."""


@dataclass(slots=True)
class Bench:
    """A recording with its sites and a float64 replay on random data to measure on.

    Weights are redrawn, since a gate or projection that starts at zero would hide what is behind
    it; inputs are redrawn unless they look like masks. Where the data decides sizes (experts that
    get the tokens routed to them), nothing is redrawn.
    """

    recording: Recording
    dependence: Dependence
    replay: Replay
    finder: Finder
    sites: list[Site]

    @classmethod
    def of(cls, recording: Recording, *, seed: int = 0) -> Bench:
        """Find the sites of `recording`, which is straightened first."""
        take_weights(recording)
        straighten(recording)
        without_levels(recording)
        dependence = Dependence(recording)
        inputs = measuring_inputs(recording, seed)
        parameters = random_parameters(recording, seed)
        replay = Replay(recording, inputs=inputs, parameters=parameters, seed=seed)
        if (finite := _finite_constants(recording)) and _gives_nan(recording, replay):
            replay = Replay(
                recording, inputs=inputs, parameters=parameters, constants=finite, seed=seed
            )
        if not _runs_alike(recording, dependence, replay):
            replay = Replay(recording, seed=seed)
        finder = Finder(dependence, replay)
        return cls(recording, dependence, replay, finder, finder.find())


def _runs_alike(recording: Recording, dependence: Dependence, replay: Replay) -> bool:
    """Return whether on the data of `replay` every tensor has the size that was recorded."""
    if not dependence.picks:
        return True
    try:
        for node in recording.outputs:
            replay.base(node)
        return all(
            tuple(replay.base(n).shape) == shape(recording, n)
            for n in dependence.live
            if is_tensor(recording, n)
        )
    except DATA_ERRORS:
        return False


def _finite_constants(recording: Recording) -> dict[Node, Tensor]:
    """Return what existed before the call and holds an infinity, with a large number in its place.

    A fill that overflowed its type gives NaN wherever it is multiplied by 0, and where everything
    is NaN nothing can be measured. In the type of the recording it stays what it is.
    """
    found: dict[Node, Tensor] = {}
    for node in recording.graph.find_nodes(op="get_attr"):
        value = recording.values[node]
        if value.is_floating_point() and bool(value.isinf().any()):
            large = torch.full((), INSTEAD, dtype=torch.float64)
            found[node] = torch.where(value.isinf(), value.double().sign() * large, value.double())
    return found


def _gives_nan(recording: Recording, replay: Replay) -> bool:
    outputs = [replay.base(n) for n in recording.outputs]
    return any(bool(x.isnan().any()) for x in outputs if isinstance(x, Tensor))


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
