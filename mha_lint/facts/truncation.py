"""Widths that the heads do not divide: channels are lost, or one head is narrower than the others."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Dims, Fact, Known, Truncation
from mha_lint.model.source import Span
from mha_lint.sites.dependence import op, shape
from mha_lint.sites.site import Site


def measure_truncation(
    bench: Bench,
    sites: list[Site],
    dims: list[Fact[Dims]],
    stated: dict[str, int],
    sizes: Mapping[str, int] | None = None,
) -> Fact[Truncation | None]:
    """Return the channels that are lost because the head count does not divide the width.

    `stated`: head widths of their own; `sizes`: all integers of the construction, by name.
    """
    for site, fact in zip(sites, dims, strict=True):
        first = site.all[0]
        narrow = _narrow_head(bench, site)
        if narrow is not None:
            return Known(narrow, f"the heads are {narrow.how}")
        if not isinstance(fact, Known) or first.q is None or first.q.source is None:
            continue
        if not isinstance(bench.recording.module, nn.Module):
            continue  # a function is handed its weights, and their widths with them
        at, source = fact.value, first.q.source
        if source.kind != "projection" or at.num_heads < 2:
            continue
        width, kept = at.d_model, at.num_heads * at.head_dim
        if width % at.num_heads == 0 or kept != at.num_heads * (width // at.num_heads):
            continue
        if at.head_dim in {*stated.values(), *(sizes or {}).values()}:
            continue  # a head width of its own, whatever it is called
        valid = tuple(n for n in range(1, width + 1) if width % n == 0)
        span = _rounding(bench, site, width, at.num_heads, sizes or {}) or span_of(source.call)
        return Known(
            Truncation(width, at.num_heads, kept, width - kept, valid, "floor division", span),
            f"W_q maps {width} channels to {kept} = {at.num_heads} * ({width} // {at.num_heads})",
        )
    return Known(None, "every width is a multiple of its head count")


def _narrow_head(bench: Bench, site: Site) -> Truncation | None:
    """Return the truncation where the heads of a loop have different widths."""
    widths: list[int] = []
    for member in site.members:
        if member.q is None:
            return None
        sizes = shape(bench.recording, member.q.node)
        widths.append(math.prod(sizes[a] for a in member.q.features))
    if len(set(widths)) < 2:
        return None
    total = sum(widths)
    q = site.all[0].q
    asked = _asked_heads(bench, site) or len(widths)
    valid = tuple(n for n in range(1, total + 1) if total % n == 0)
    listed = ", ".join(str(w) for w in widths)
    span = _first_split(bench, site) or (
        span_of(q.source.call) if q is not None and q.source else None
    )
    return Truncation(total, asked, total, total % asked, valid, f"{listed} channels wide", span)


def _asked_heads(bench: Bench, site: Site) -> int | None:
    """Return how many heads the split was asked for.

    ``torch.chunk(x, 7)`` may give fewer parts, and ``x.split(width // heads)`` gives one more.
    """
    q = site.all[0].q
    if q is None or q.source is None:
        return None
    for node in bench.dependence.between(q.source.node, q.node):
        asked = node.args[1] if len(node.args) > 1 else None
        if op(node) == "chunk" and isinstance(asked, int):
            return asked
        if op(node) == "split" and isinstance(asked, int) and asked > 0:
            return max(1, q.source.out_width // asked)
    return None


def _first_split(bench: Bench, site: Site) -> Span | None:
    q = site.all[0].q
    if q is None or q.source is None:
        return None
    for node in bench.dependence.between(q.source.node, q.node):
        if op(node) in ("chunk", "split", "tensor_split", "index", "narrow"):
            return span_of(node)
    return None


def _rounding(
    bench: Bench, site: Site, width: int, heads: int, sizes: Mapping[str, int]
) -> Span | None:
    """Return the line that rounds the head width down, in the class of the site or in one around it.

    The innermost class that rounds at all is asked, after those where the numbers are known to be
    the width and the heads.
    """
    first: Span | None = None
    for owner in _owners(bench, site):
        for path, node, parts in _divisions(type(owner)):
            known = [_value(part, owner, sizes) for part in parts]
            if known == [width, heads]:
                return _span(path, node)
            fits = all(a is None or a == b for a, b in zip(known, (width, heads), strict=True))
            if first is None and fits:
                first = _span(path, node)
    return first


def _owners(bench: Bench, site: Site) -> Iterator[Any]:
    """Yield the module of the site and those that hold it, the innermost first."""
    names = bench.recording.modules
    path = str(site.context.meta.get("module", ""))
    while path:
        if path in names:
            yield names[path]
        path = path.rpartition(".")[0]
    if bench.recording.module is not None:
        yield bench.recording.module


def _divisions(cls: type) -> Iterator[tuple[str, ast.expr, tuple[ast.expr, ast.expr]]]:
    """Yield each ``a // b``, ``int(a / b)`` and ``math.floor(a / b)`` of `cls`: path, node, (a, b)."""
    for source in class_sources(cls):
        for node in ast.walk(source.node):
            match node:
                case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                    yield source.path, node, (left, right)
                case ast.Call(
                    func=ast.Name(id="int" | "floor") | ast.Attribute(attr="int" | "floor"),
                    args=[ast.BinOp(op=ast.Div(), left=left, right=right), *_],
                ):
                    yield source.path, node, (left, right)


def _value(node: ast.expr, owner: Any, sizes: Mapping[str, int]) -> int | None:
    """Return the integer that `node` stands for, None where that is not known."""
    value: object = None
    match node:
        case ast.Constant():
            value = node.value
        case ast.Name(id=name):
            value = sizes.get(name)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            value = getattr(owner, name, sizes.get(name))
        case ast.Attribute(attr=name):
            value = sizes.get(name)
    return value if type(value) is int else None


def _span(path: str, node: ast.expr) -> Span:
    end, column = node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1
    return Span(path, node.lineno, node.col_offset + 1, end, column)
