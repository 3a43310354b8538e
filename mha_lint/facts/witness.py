"""Two runs that prove a wrong head split: they differ at one position, and in what they should not."""

from __future__ import annotations

from math import prod

import torch

from mha_lint.facts.bench import Bench
from mha_lint.sites.operand import Operand


def split_witness(bench: Bench, operand: Operand, which: str) -> str:
    """Return what changing one position of a projection moves in one score matrix, "" if no proof.

    Where heads are split rightly, that is one whole row for each head.
    """
    source = operand.source
    if source is None or not operand.rows or not operand.features:
        return ""
    replay = bench.replay
    base = replay.base(source.node)
    moved = base.clone()
    place = tuple(0 if a in source.data_axes else slice(None) for a in range(base.dim()))
    generator = torch.Generator().manual_seed(23)
    shift = torch.rand(moved[place].shape, generator=generator, dtype=moved.dtype) + 0.5
    moved[place] = moved[place] + shift
    (after,) = replay.run([operand.node], {source.node: moved})
    changed = (after - replay.base(operand.node)).abs() > 1e-12
    order = (*operand.groups, *operand.rows, *operand.features)
    if sorted(order) != list(range(changed.dim())):
        return ""
    sizes = [changed.shape[a] for a in order]
    first, last = len(operand.groups), len(operand.groups) + len(operand.rows)
    flat = changed.permute(order).reshape(
        prod(sizes[:first]), prod(sizes[first:last]), prod(sizes[last:])
    )
    rows = flat.any(-1)
    fullest = int(rows.sum(-1).argmax())
    hit = rows[fullest].nonzero().flatten().tolist()
    if len(hit) > 1:
        listed = ", ".join(str(r) for r in hit[:-1])
        return (
            f"changing one position of {which} alone moves rows {listed} and {hit[-1]} of one score"
            " matrix, not one row of each head"
        )
    if len(hit) == 1:
        part, whole = int(flat[fullest, hit[0]].sum()), flat.shape[-1]
        if part < whole:
            return (
                f"changing one position of {which} alone moves {part} of the {whole} channels of row"
                f" {hit[0]}: the others belong to other positions"
            )
    return ""
