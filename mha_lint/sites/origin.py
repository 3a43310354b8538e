"""Which score each weight that meets V came from."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mha_lint.capture import Replay
from mha_lint.sites.normaliser import Normaliser
from mha_lint.sites.trace import Trace, trace


def origin_of_weights(
    replay: Replay, normaliser: Normaliser, to_logits: Trace, to_weights: Trace
) -> tuple[Tensor, ...] | None:
    """Return, per axis of the scores, the index that each weight came from.

    `to_logits` leads from the scores to the normaliser's input, `to_weights` from its (last) result
    to the operand that meets V. A later normaliser keeps the layout, or (a map over heads on the
    last axis) is traced.
    """
    found = compose(to_logits, to_weights)
    if found is not None or not normaliser.later:
        return found
    between = trace(replay, normaliser.weights, normaliser.later[-1])
    carried = compose(to_logits, between)
    if carried is None:
        return None
    return compose(replace(between, shape=to_logits.shape, index=carried), to_weights)


def compose(first: Trace, second: Trace) -> tuple[Tensor, ...] | None:
    """Return, per source axis of `first`, the index each element at the end of `second` came from.

    The middle tensor is the target of `first` and has the shape of `second`'s source. Axes that are
    mixed on the way (a map over heads) count as index 0 there: no other axis depends on them.
    """
    if tuple(first.responds.shape) != second.shape:
        return None
    known = second.responds
    for index, clean in zip(second.index, second.clean, strict=True):
        if clean:
            known = known & (index >= 0)  # the response was too weak to tell
    flat = torch.zeros(second.responds.shape, dtype=torch.long, device=second.responds.device)
    for size, index in zip(second.shape, second.index, strict=True):
        flat = flat * size + index.clamp(min=0)
    out: list[Tensor] = []
    for index in first.index:
        taken = index.reshape(-1)[flat]
        out.append(torch.where(known, taken, torch.full_like(taken, -1)))
    return tuple(out)
