"""What may stand between logits (G, T_q, T_k) and weights, as plain functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

# A mask is filled with -inf; for what is no softmax, hidden entries count as weight zero.


def softmax(logits: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the softmax over `axes` together; NaN where everything is hidden."""
    if len(axes) == 1:
        return torch.softmax(logits, axes[0])
    exponentials = torch.exp(logits - logits.amax(axes, keepdim=True))
    return exponentials / exponentials.sum(axes, keepdim=True)


def quiet_softmax(logits: Tensor) -> Tensor:
    """Return exp(x) / (1 + sum(exp(x))) over the keys."""
    largest = logits.amax(-1, keepdim=True).clamp(min=0.0)
    exponentials = torch.exp(logits - largest)
    return exponentials / (torch.exp(-largest) + exponentials.sum(-1, keepdim=True))


def renormalised(logits: Tensor, *, kept: Tensor) -> Tensor:
    """Return the softmax over those keys alone that `kept` (G, T_q, T_k) holds."""
    return torch.where(kept, torch.softmax(logits.masked_fill(~kept, float("-inf")), -1), 0.0)


def sparsemax(logits: Tensor) -> Tensor:
    """Return the Euclidean projection onto the simplex (Martins and Astudillo, 2016)."""
    ordered = logits.sort(-1, descending=True).values
    numbers = torch.arange(1, logits.shape[-1] + 1, dtype=logits.dtype, device=logits.device)
    sums = ordered.cumsum(-1)
    kept = 1 + numbers * ordered > sums
    count = kept.sum(-1, keepdim=True).clamp(min=1)
    threshold = (sums.gather(-1, count - 1) - 1) / count
    return torch.relu(logits - threshold)


def _over_sum(values: Tensor) -> Tensor:
    return values / values.sum(-1, keepdim=True)


def _shown(logits: Tensor) -> Tensor:
    return torch.where(torch.isneginf(logits), 0.0, logits)


def _none(logits: Tensor) -> Tensor:
    return logits


def _over_maximum(logits: Tensor) -> Tensor:
    return torch.exp(logits - logits.amax(-1, keepdim=True))


def _exp(logits: Tensor) -> Tensor:
    return torch.exp(logits)


def _relu_over_sum(logits: Tensor) -> Tensor:
    return _over_sum(torch.relu(logits))


def _sum(logits: Tensor) -> Tensor:
    return _over_sum(_shown(logits))


def _absolute_sum(logits: Tensor) -> Tensor:
    shown = _shown(logits)
    return shown / shown.abs().sum(-1, keepdim=True)


def _relu_squared(logits: Tensor) -> Tensor:
    return torch.relu(logits).square()


def _sigmoid_over_sum(logits: Tensor) -> Tensor:
    return _over_sum(torch.sigmoid(logits))


def _elu_over_sum(logits: Tensor) -> Tensor:
    return _over_sum(torch.nn.functional.elu(logits) + 1)


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1)


def _softplus(logits: Tensor) -> Tensor:
    return torch.nn.functional.softplus(logits)


def _unit(logits: Tensor) -> Tensor:
    shown = _shown(logits)
    return shown / shown.square().sum(-1, keepdim=True).sqrt()


OTHERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "none": _none,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "softplus": _softplus,
    "tanh": torch.tanh,
    "exp": _exp,
    "exp over its maximum": _over_maximum,
    "relu over its sum": _relu_over_sum,
    "relu squared": _relu_squared,
    "sigmoid over its sum": _sigmoid_over_sum,
    "division by the sum": _sum,
    "division by the sum of magnitudes": _absolute_sum,
    "division by the norm": _unit,
    "elu + 1 over its sum": _elu_over_sum,
    "log-softmax": _log_softmax,
}
"""Functions that stand in place of the softmax, by the name that a message uses."""
