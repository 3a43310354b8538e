"""What the oracle is told about one attention site: tensors and names, nothing else.

The engine's own account of a site (its facts) must not reach the oracle, or the second opinion
would be the first one again. So this is data only: what stood in which tensor of one call, in
float64, with its axes brought into one order.

Words for axes: ``G`` groups, one for each score matrix (usually sample x head), in the order in
which the site itself lists them; ``T_q`` and ``T_k`` rows and columns of a score matrix; ``D`` the
contracted channels (head_dim); ``d_v`` the channels of one head's value; ``B`` samples, ``T``
positions and ``C`` channels of a projection's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One operand (q, k or v) of a site, and the projection's output that it came from.

    ``value``: (G, R, D), what the site really contracted; R is T_q for q and T_k for k and v, D is
    d_v for v. With grouped keys and values it is already repeated: G is that of the scores.
    ``source``: (B, T, C), the output of the projection it came from, with its axes brought into
    the order sample, position, channel; None where it is not known.
    ``source_heads``: (h, D) or (h_kv, D) long, the channels of ``source`` that each head takes;
    None: consecutive ones. Only a default: any fixed order of channels is accepted.
    ``opaque``: why ``value`` is no plain gather of ``source`` (a rotation, a norm); then the split
    of this operand is not compared.
    ``due``: (B, T, C), the projection's output that the operand should come from, where it is
    known to be another tensor than ``source`` (a value projection that is computed and not used).
    """

    value: Tensor
    source: Tensor | None = None
    source_heads: Tensor | None = None
    opaque: str | None = None
    due: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """The normaliser's input as the site lays it out.

    ``full``: the whole tensor in its native shape; it may hold more than the scores (sinks).
    ``index``: (G, T_q, T_k) long, where each score stands in ``full.flatten()``.
    """

    full: Tensor
    index: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SiteData:
    """One attention site in one call, in float64.

    ``raw``: (G, T_q, T_k), the output of the score contraction. ``logits``: (G, T_q, T_k), the
    input of the (first) normaliser. ``additive``: (G, T_q, T_k), the logits with ``raw`` replaced
    by zero, which is bias and mask and may hold -inf; None: nothing is added. ``weights``:
    (G, T_q, T_k), what is contracted with the values. ``context``: (G, T_q, d_v), the output of
    the value contraction. ``merged``: (B, T_q, C'), the input of the output projection, or what is
    returned where there is none; None where it is not known. ``output_weight``: (D_out, C') and
    ``output_bias``: (D_out,), as nn.Linear holds them; None: no output projection is due here.
    ``output``: (B, T_q, D_out).

    ``group_of``: (G, 2) long, sample and head of each group, None where the oracle must find out.
    ``native``: None where the normaliser saw exactly (G, T_q, T_k).
    ``named_scales``: what quantities of this call's sizes a scale can be, in order of preference:
    "1", "1/sqrt(head_dim)", ... The same names must be used at both sizes.
    ``expected_scale``: the total gain that is due from q.k of the projections' outputs to the
    logits; None where no fixed one is due (cosine attention, a learned temperature).
    ``causal_due``: True or False where the contract says so, None where nothing is said.
    ``named_sources``: (B, T, C) tensors that an operand may wrongly come from, by a name that
    reads well after "values made from": "W_v of the query input".
    ``reason_skip``: why this site cannot be compared at all.
    """

    q: Operand
    k: Operand
    v: Operand
    heads: int
    kv_heads: int
    batch: int
    head_dim: int
    d_model: int
    raw: Tensor
    logits: Tensor
    weights: Tensor
    context: Tensor
    additive: Tensor | None = None
    merged: Tensor | None = None
    output_weight: Tensor | None = None
    output_bias: Tensor | None = None
    output: Tensor | None = None
    group_of: Tensor | None = None
    native: Native | None = None
    named_scales: Mapping[str, float] = field(default_factory=dict)
    expected_scale: float | None = None
    causal_due: bool | None = None
    named_sources: Mapping[str, Tensor] = field(default_factory=dict)
    reason_skip: str | None = None


def moved(data: SiteData, device: torch.device | str) -> SiteData:
    """Return `data` with every tensor of it on `device`."""

    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device)

    def operand(own: Operand) -> Operand:
        return Operand(
            value=own.value.to(device),
            source=there(own.source),
            source_heads=there(own.source_heads),
            opaque=own.opaque,
            due=there(own.due),
        )

    native = data.native
    return replace(
        data,
        q=operand(data.q),
        k=operand(data.k),
        v=operand(data.v),
        raw=data.raw.to(device),
        logits=data.logits.to(device),
        weights=data.weights.to(device),
        context=data.context.to(device),
        additive=there(data.additive),
        merged=there(data.merged),
        output_weight=there(data.output_weight),
        output_bias=there(data.output_bias),
        output=there(data.output),
        group_of=there(data.group_of),
        native=None if native is None else Native(native.full.to(device), native.index.to(device)),
        named_sources={name: tensor.to(device) for name, tensor in data.named_sources.items()},
    )


def named_scales(
    *, head_dim: int, d_model: int, num_heads: int, t_k: int, num_kv_heads: int | None = None
) -> dict[str, float]:
    """Return what a scale can be at these sizes, the likeliest readings first."""
    base = {
        "1/sqrt(head_dim)": head_dim**-0.5,
        "1": 1.0,
        "1/sqrt(d_model)": d_model**-0.5,
        "1/head_dim": 1 / head_dim,
        "1/sqrt(num_heads)": num_heads**-0.5,
        "1/sqrt(T_k)": t_k**-0.5,
        "sqrt(head_dim)": head_dim**0.5,
        "1/d_model": 1 / d_model,
        "1/num_heads": 1 / num_heads,
        "1/T_k": 1 / t_k,
        "sqrt(d_model)": d_model**0.5,
        "sqrt(num_heads)": num_heads**0.5,
        "head_dim": float(head_dim),
        "1/sqrt(3*head_dim)": (3 * head_dim) ** -0.5,
        "1/sqrt(2*head_dim)": (2 * head_dim) ** -0.5,
        "1/sqrt(head_dim/2)": (head_dim / 2) ** -0.5,
    }
    if num_kv_heads is not None and num_kv_heads != num_heads:
        base["1/sqrt(num_kv_heads)"] = num_kv_heads**-0.5
    products = {
        "1/sqrt(head_dim) * 1/sqrt(d_model)": (head_dim * d_model) ** -0.5,
        "1/sqrt(head_dim) * 1/sqrt(T_k)": (head_dim * t_k) ** -0.5,
        "1/sqrt(head_dim) * 1/head_dim": head_dim**-1.5,
        "1/head_dim * 1/head_dim": head_dim**-2.0,
        "head_dim**(-1/4)": head_dim**-0.25,
        "d_model**(-1/4)": d_model**-0.25,
    }
    return base | products


def inconsistent(data: SiteData) -> str | None:
    """Return why the tensors of `data` cannot belong to one site, or None if they can."""
    shape = data.raw.shape
    compared = (data.raw, data.logits, data.weights, data.context, data.q.value, data.k.value)
    for tensor in (*compared, data.v.value):
        if tensor.dtype != torch.float64:
            return f"the tensors are {str(tensor.dtype).removeprefix('torch.')}, not float64"
    for name in ("logits", "weights"):
        own: Tensor = getattr(data, name)
        if own.shape != shape:
            return f"{name} of shape {tuple(own.shape)} do not belong to scores {tuple(shape)}"
    if len(shape) != 3 or 0 in shape:
        return f"scores of shape {tuple(shape)} are no score matrices"
    for name in ("q", "k", "v"):
        operand: Operand = getattr(data, name)
        if operand.value.dim() != 3 or operand.value.shape[0] != shape[0]:
            own_shape = tuple(operand.value.shape)
            return f"the {name} operand {own_shape} does not belong to scores {tuple(shape)}"
    if data.additive is not None and data.additive.shape != shape:
        return f"an additive part {tuple(data.additive.shape)} does not belong to {tuple(shape)}"
    return None
