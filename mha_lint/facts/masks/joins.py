"""Where masks meet the scores of a site, where they are made, and which of these lines is at fault."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.masks.patterns import triangle_in
from mha_lint.facts.masks.roots import HIDING, mask_closure
from mha_lint.facts.places import span_beside, span_of
from mha_lint.facts.spans import own_line
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, is_tensor, op, operands, stack_of
from mha_lint.sites.site import Site

MANY = 4096
"""Elements that are looked at to see whether a tensor holds two numbers."""
LOGICAL = frozenset(["bitwise_and", "bitwise_or", "logical_and", "logical_or"])
MEETINGS = LOGICAL | {"mul", "add", "where"}


def join_of(bench: Bench, site: Site, made: Node | None) -> Node | None:
    """Return the operation that brings `made` (None: any mask) to the scores or weights of `site`."""
    closure = mask_closure(bench, site)
    below = bench.dependence.descendants([made]) if made is not None else closure
    carried = bench.dependence.descendants([site.scores])
    ends = bench.dependence.ancestors([site.normaliser.logits, site.weights])
    found = [
        n
        for n in (carried | {site.scores}) & ends
        if any(o in below and o in closure and is_tensor(bench.recording, o) for o in operands(n))
    ]
    return min(found, key=bench.dependence.order.__getitem__) if found else None


def fill_of(
    bench: Bench, site: Site, made: Node | None, values: tuple[Tensor, ...] = ()
) -> Node | None:
    """Return the operation that makes of yes and no what is hidden: a fill, a product with -1e9.

    That is where a mask is read one way or the other; it may stand before it meets the scores.
    ``values``: what `made` is replaced by, one after the other, to see which one hides.
    """
    join = join_of(bench, site, made)
    held = bench.recording.values.get(made) if made is not None else None
    if made is None or join is None or is_fixed(bench, join) or not isinstance(held, Tensor):
        return join
    if held.is_floating_point() and _hides(held):
        return join  # it hides as it is
    below = bench.dependence.descendants([made]) & mask_closure(bench, site)
    path = [
        n
        for n in sorted(below - {made}, key=bench.dependence.order.__getitem__)
        if is_number(bench.recording, n)
    ]
    runs = [bench.replay.run(path, {made: v}) for v in values] or [
        [bench.replay.base(n) for n in path]
    ]
    return next((n for n, *found in zip(path, *runs, strict=True) if any(map(_hides, found))), join)


def _hides(value: Tensor) -> bool:
    return bool(value.numel()) and bool((value <= -HIDING).any())


def triangle_node(bench: Bench, site: Site) -> Node | None:
    """Return the first node of the masks of `site` that holds a triangle."""
    for node in sorted(mask_closure(bench, site), key=bench.dependence.order.__getitem__):
        value = bench.recording.values.get(node)
        if isinstance(value, Tensor) and triangle_in(value) is not None:
            return node
    return None


def is_fixed(bench: Bench, node: Node | None) -> bool:
    """Return whether `node` is part of a function or layer of torch, which has its own convention."""
    if node is None:
        return False
    if "lowered" in node.meta:
        return True
    module: Any = bench.recording.module
    path = str(node.meta.get("module", ""))
    if not path or not isinstance(module, nn.Module):
        return False
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return False
    return type(owner).__module__.startswith("torch.")


def apart(one: Node, other: Node) -> bool:
    """Return whether two nodes were made in different classes (or in functions of different ones)."""
    first, second = _owner(one), _owner(other)
    return first is not None and second is not None and first != second


def handed_over(made: Node, join: Node) -> bool:
    """Return whether a mask was made outside of the class that reads it, and handed to it.

    A helper that the reader calls itself hands nothing over.
    """
    if made.op == "get_attr" or not apart(made, join):
        return False
    return stack_of(join)[-1].function not in {f.function for f in stack_of(made)}


def _owner(node: Node) -> str | None:
    stack = stack_of(node)
    if not stack:
        return None
    function = stack[-1].function
    return function.rpartition(".")[0] or function


def meeting_of(bench: Bench, site: Site, made: Node, *, own: bool = False) -> Node | None:
    """Return the first operation that joins what comes from `made` with another mask, if one does.

    ``own``: the other mask may come from `made` as well.
    """
    return meeting_in(bench, mask_closure(bench, site), made, own=own)


def meeting_in(bench: Bench, closure: set[Node], made: Node, *, own: bool = False) -> Node | None:
    """Return the first such operation among the nodes of `closure`."""
    below = bench.dependence.descendants([made])
    for node in sorted(below & closure, key=bench.dependence.order.__getitem__):
        if op(node) not in MEETINGS:
            continue
        joined = operands(node)
        if own and len(joined) > 1 and op(node) in LOGICAL:
            return node
        values = [bench.recording.values.get(n) for n in joined if n not in below]
        others = [v for v in values if isinstance(v, Tensor)]
        if any(len(set(v.flatten()[:MANY].tolist())) == 2 for v in others):
            return node
    return None


def line_of_its_own(bench: Bench, site: Site, node: Node | None, others: list[Site]) -> Span | None:
    """Return the innermost line that led to `node` and to none of the masks of `others`.

    One helper serves several sites: what is wrong at one of them is wrong in its call.
    """
    if node is None:
        return None
    theirs = []
    for other in others:
        one = other.all[0]
        join = join_of(bench, one, None)
        theirs += [n for n in (join, one.scores) if n is not None]
    return own_line(node, [n for n in theirs if span_of(n) == span_of(node)])


def made_at(bench: Bench, node: Node | None) -> Span | None:
    """Return the user's line that made `node`; of a buffer, where it is declared."""
    if node is None:
        return None
    if node.op == "get_attr":
        name = node.meta.get("buffer") or node.meta.get("parameter") or node.meta.get("constant")
        return declared_at(bench.recording.module, str(name)) if name else None
    if node.op == "placeholder":
        return None
    return span_of(node)


def call_line(site: Site, join: Node | None, made: Node | None) -> Span | None:
    """Return the line that hands the mask to the attention, where attention is a module of its own."""
    module = str(site.context.meta.get("module", ""))
    if not module or join is None:
        return span_of(join)
    stack = stack_of(join)
    forwards = [i for i, f in enumerate(stack) if f.function.split(".")[-1] == "forward"]
    if len(forwards) >= 2:
        return stack[forwards[-1] - 1].span
    if made is None or made.op == "placeholder":
        return span_of(join)
    return span_beside(join, made)
