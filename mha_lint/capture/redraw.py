"""New inputs and parameters for a recording, drawn at random from a seed."""

from __future__ import annotations

import torch

from mha_lint.capture.recording import Recording
from mha_lint.targets.large import has_no_values


def random_inputs(recording: Recording, seed: int) -> list[torch.Tensor]:
    """Return new inputs: floats redrawn at the same scale, integers shuffled, booleans kept.

    Float tensors of at most three distinct values are masks or flags, and kept too.
    """
    generator = torch.Generator().manual_seed(seed)
    return [redrawn(x, generator) for x in recording.inputs]


def redrawn(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor like `x` with other values; see `random_inputs`."""
    if has_no_values(x) or x.numel() == 0 or x.dtype == torch.bool:
        return x.clone()
    if x.is_complex():
        return torch.view_as_complex(
            torch.randn(*x.shape, 2, generator=generator, dtype=torch.float64).contiguous()
        ).to(x.device, x.dtype)
    if not x.is_floating_point():
        flat = x.reshape(-1)
        return flat[torch.randperm(flat.numel(), generator=generator).to(x.device)].reshape(x.shape)
    finite = x.detach().double()
    if not bool(finite.isfinite().all()) or torch.unique(finite).numel() <= 3:
        return x.clone()
    spread = float(finite.square().mean().sqrt())
    fresh = torch.randn(x.shape, generator=generator, dtype=torch.float64) * spread
    if bool((finite >= 0).all()):  # probabilities, distances: a logarithm may follow
        fresh = fresh.abs()
    return fresh.to(x.device, x.dtype)


def random_parameters(recording: Recording, seed: int) -> dict[str, torch.Tensor]:
    """Return new values of the trainable floating parameters, N(0, 1)/sqrt(fan_in).

    Frozen ones are left out, and so keep their values: tables of positions must stay what they are.
    """
    generator = torch.Generator().manual_seed(seed)
    new: dict[str, torch.Tensor] = {}
    for name, node in recording.parameters.items():
        x = recording.values[node]
        if not node.meta.get("trainable") or not x.is_floating_point():
            continue
        fan_in = x.shape[1:].numel() if x.dim() > 1 else x.numel()
        draw = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        new[name] = draw / max(fan_in, 1) ** 0.5
    return new
