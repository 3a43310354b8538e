"""The whole site recomputed from the projections' outputs, once as due and once as found.

The stages are judged one by one; here they are put together, so that the proof speaks of the
site's output and not of an intermediate.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mha_lint.oracle.fit import Fit
from mha_lint.oracle.layouts import right_operand
from mha_lint.oracle.reference import linear, softmax
from mha_lint.oracle.variants import causal
from mha_lint.oracle.variants.scores import operand_gain
from mha_lint.oracle.view import SiteView

Readings = Mapping[str, Fit]
"""The reading of each step at one size; a step that was not compared is missing."""


def as_found(view: SiteView, readings: Readings) -> Tensor | None:
    """Return the last comparable tensor recomputed with the readings; None if a link is missing."""
    if not {"scores", "weights", "context"} <= readings.keys():
        return None
    q, k, v = (_operand(view, readings, letter) for letter in "qkv")
    logits = _logits(view, readings, readings["scores"].apply(q, k, v), due=False)
    weights = readings["weights"].apply(logits).nan_to_num(0.0)
    context = readings["context"].apply(weights, q, k, v)
    if "merge" not in readings:
        return context
    merged = readings["merge"].apply(context)
    return readings["output"].apply(merged) if "output" in readings else merged


def as_due(view: SiteView, readings: Readings) -> Tensor | None:
    """Return the same tensor as the definition wants it, from the same projections' outputs.

    None where a wrong split leaves it open which scores a bias or mask belongs to.
    """
    wrong = any(
        readings[step].departures for step in readings if step.startswith(("split:", "roles:"))
    )
    return _from_sources(view, readings) if wrong else _in_place(view, readings)


def site_tensor(view: SiteView, readings: Readings) -> Tensor:
    """Return what `as_found` and `as_due` are to be compared with."""
    data = view.data
    if "merge" not in readings or data.merged is None:
        return data.context  # behind a merge that was not compared, nothing can be
    if "output" in readings and data.output is not None:
        return data.output
    return data.merged


def _operand(view: SiteView, readings: Readings, letter: str) -> Tensor:
    """Return an operand recomputed from its source, its gain included, or as the site has it."""
    operand, fit = view.operand(letter), readings.get(f"split:{letter}")
    if fit is None or operand.source is None or not isinstance(fit.scale, float):
        return operand.value
    return fit.apply(operand.source) * fit.scale


def _logits(view: SiteView, readings: Readings, scores: Tensor, *, due: bool) -> Tensor:
    """Return scaled scores with bias and mask: the site's own, or (`due`) with the due triangle."""
    data, causal_reading = view.data, readings.get("causal")
    if due and causal_reading is not None and causal_reading.departures:
        return scores + causal.due_additive(view)
    if data.additive is None:
        return torch.where(view.hidden, data.logits, scores)
    added = torch.where(view.hidden, data.additive, scores + data.additive)
    return torch.where(view.hidden & torch.isneginf(data.logits), data.logits, added)


def _in_place(view: SiteView, readings: Readings) -> Tensor | None:
    """Return the definition's result where the operands are right: only later steps may differ."""
    data = view.data
    q, k, v = (_operand(view, readings, letter) for letter in "qkv")
    scores = readings.get("scores")
    if q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        return None
    if scores is not None and not scores.departures:
        product = scores.apply(q, k, v)
    elif data.expected_scale is not None:
        gains = (operand_gain(view, "q") or 1.0) * (operand_gain(view, "k") or 1.0)
        product = torch.einsum("gqd,gkd->gqk", q, k) * (data.expected_scale / gains)
    else:
        return None
    logits = _logits(view, readings, product, due=True)
    found = readings.get("weights")
    if found is not None and not found.departures:
        weights = found.apply(logits).nan_to_num(0.0)
    else:
        weights = softmax(logits)
    if weights.shape[2] != v.shape[1]:
        return None
    context = torch.einsum("gqk,gkd->gqd", weights, v)
    merge = readings.get("merge")
    if merge is None:
        return context
    if not merge.departures:
        return _projected(view, readings, merge.apply(context))
    groups = view.groups
    if groups is None or data.merged is None or context.numel() != data.merged.numel():
        return None
    side_by_side = groups.unfold(context).permute(0, 2, 1, 3)
    return _projected(view, readings, side_by_side.reshape(data.merged.shape))


def _from_sources(view: SiteView, readings: Readings) -> Tensor | None:
    """Return the definition's result with every operand split anew, heads in sample-major order."""
    data = view.data
    q, k, v = (
        right_operand(view.operand(letter), data.heads, view.operand(letter).due)
        if view.operand(letter).opaque is None
        else None
        for letter in "qkv"
    )
    if q is None or k is None or v is None or q.shape[0] != k.shape[0]:
        return None
    product = torch.einsum("bhqd,bhkd->bhqk", q, k)
    scale = data.expected_scale
    if scale is None:
        fit = readings.get("scores")
        if fit is None or not isinstance(fit.scale, Tensor):
            return None
        scale = fit.scale[0].item()
    additive = _shared_additive(view, product)
    if additive is None:
        return None
    context = torch.einsum("bhqk,bhkd->bhqd", softmax(product * scale + additive), v)
    if "merge" not in readings or data.merged is None:
        return context.flatten(0, 1)
    merged = context.permute(0, 2, 1, 3).flatten(2)
    return _projected(view, readings, merged) if merged.shape == data.merged.shape else None


def _shared_additive(view: SiteView, product: Tensor) -> Tensor | None:
    """Return what is added to scores (B, h, T_q, T_k), unless that depends on the group."""
    additive = view.data.additive
    if additive is None or not bool(additive.any()):
        return product.new_zeros(())
    same = additive.shape[1:] == product.shape[2:]
    return additive[0] if same and bool((additive == additive[:1]).all()) else None


def _projected(view: SiteView, readings: Readings, merged: Tensor) -> Tensor | None:
    data = view.data
    if "output" not in readings or data.output_weight is None:
        return merged
    if data.output_weight.shape[1] != merged.shape[-1]:
        return None
    return linear(merged, data.output_weight, data.output_bias)
