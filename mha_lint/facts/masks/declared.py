"""Triangles that a class keeps in a buffer and never reads."""

from __future__ import annotations

import ast
import math

import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.masks.forms import hidden_pairs, hides_already
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Kind
from mha_lint.model.mask_facts import IgnoredMask
from mha_lint.sites.dependence import shape
from mha_lint.sites.site import Site


def unread_triangles(bench: Bench) -> list[IgnoredMask]:
    """Return the triangular buffers of the modules that attend which their code names nowhere else.

    A buffer that another branch reads, or whose pairs are hidden otherwise, is none.
    """
    root = bench.recording.module
    if not isinstance(root, nn.Module):
        return []
    recorded = {n.meta.get("buffer") for n in bench.recording.graph.nodes}
    found: list[IgnoredMask] = []
    for site in bench.sites:
        path = str(site.context.meta.get("module", ""))
        owner = root.get_submodule(path)
        text = _behind_the_constructor(type(owner))
        for name, value in owner.named_buffers(recurse=False):
            full = f"{path}.{name}" if path else name
            if full in recorded or name in text or "getattr(self" in text:
                continue
            table = _triangle(value)
            if table is not None and _is_missing(bench, site.all[0], table):
                found.append(
                    IgnoredMask(
                        name,
                        "built",
                        tuple(value.shape),
                        str(value.dtype).removeprefix("torch."),
                        (),
                        True,
                        span_of(site.all[0].normaliser.weights),
                        declared_at(root, full),
                    )
                )
    return found


def _triangle(value: Tensor) -> Tensor | None:
    """Return the truth values of a square triangle with nothing beside it, else None."""
    own = value.reshape([n for n in value.shape if n != 1])
    if own.dim() != 2 or own.shape[0] != own.shape[1] or own.shape[0] < 3:
        return None
    truths = own != 0
    lower, upper = truths.tril(), truths.triu()
    ones = torch.ones_like(truths)
    for part, whole in ((lower, ones.tril()), (upper, ones.triu()), (upper, ones.triu(1))):
        if torch.equal(truths, part) and torch.equal(part, whole):
            return truths
    return None


def _is_missing(bench: Bench, site: Site, table: Tensor) -> bool:
    """Return whether `site` attends over as many positions at most, and hides no such triangle."""
    sizes = shape(bench.recording, site.scores)
    t_q = math.prod(sizes[a] for a in site.row_axes)
    t_k = math.prod(sizes[a] for a in site.key_axes)
    if site.kind is not Kind.SELF or t_q != t_k or not 2 < t_k <= table.shape[0]:
        return False
    known = hidden_pairs(bench, site)
    return known is not None and not hides_already(bench, site, table[:t_q, :t_k], *known)


def _behind_the_constructor(cls: type) -> str:
    """Return the source of `cls` and its bases without ``__init__``, all there is if it is not known."""
    sources = class_sources(cls)
    if not sources:
        return "getattr(self"
    bodies = [b for s in sources for b in s.node.body if getattr(b, "name", "") != "__init__"]
    return "\n".join(ast.unparse(b) for b in bodies)
