"""The tensors of yes and no from which what a site hides is made, and what each element is about.

A root is a mask that came as an argument, or the comparison in which token ids, lengths or data
become yes and no. Which sample and position each of its elements stands for is measured: token ids
are replaced by their own places, and the comparison's operand then tells them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry
from mha_lint.facts.masks.held import entries_of
from mha_lint.facts.masks.once import once
from mha_lint.sites.dependence import is_number, is_tensor, op, operands
from mha_lint.sites.site import Site
from mha_lint.sites.trace import trace

COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "isnan", "isin"])
CASTS = frozenset(["to", "bool", "type_as", "sign"])
LAYOUT = frozenset(
    [
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "expand",
        "expand_as",
        "transpose",
        "permute",
        "flatten",
        "unflatten",
        "slice",
        "index",
        "getitem",
        "select",
        "narrow",
        "contiguous",
        "clone",
        "to",
        "detach",
        "repeat",
        "repeat_interleave",
        "movedim",
        "chunk",
        "split",
        "unbind",
        "flip",
        "roll",
    ]
)
"""What moves elements about and changes none."""
HIDING = 5e3
"""An additive mask of numbers hides where it is this far below 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """One tensor of yes and no.

    ``off`` and ``on``: the numbers that no and yes are in it (0 and 1; of an additive mask the fill
    and 0, ``additive``). ``argument``: the input it is or is made from, ``compares`` the operation
    that makes it ("" for an argument), ``constant`` the number that is compared with, if it is one.
    Of the shape of `node`: ``samples`` and ``positions``, what each element is about, -1 unknown.
    ``entry``: where the positions are those of an entry (token ids), that entry, else None: then
    they are counted along the argument's own axis.
    """

    node: Node
    argument: str
    placeholder: Node
    compares: str
    constant: float | None
    off: float
    on: float
    additive: bool
    samples: Tensor
    positions: Tensor
    entry: Entry | None

    @property
    def name(self) -> str:
        """Return how a reader knows the mask."""
        return f"the mask made from {self.argument}" if self.compares else self.argument

    @property
    def placed(self) -> bool:
        """Return whether sample and position of its elements are known."""
        return bool((self.samples >= 0).all()) and bool((self.positions >= 0).all())

    @property
    def per_sample(self) -> bool:
        """Return whether the sample of each element is known."""
        return bool((self.samples >= 0).all())


@once
def mask_closure(bench: Bench, site: Site) -> set[Node]:
    """Return what reaches normaliser or weights of `site` beside its scores."""
    stop = {site.scores, *site.extra}
    below = bench.dependence.descendants([site.scores])
    front, seen = [site.normaliser.logits, site.weights], set[Node]()
    if site.score is not None:  # ``baddbmm`` adds a mask to the product at once
        product = (site.score.left, site.score.right)
        front += [n for n in operands(site.score.node) if n not in product]
    while front:
        node = front.pop()
        if node in seen or node in stop:
            continue
        seen.add(node)
        front += operands(node)
    return {n for n in seen if n not in below}


@once
def roots_of(bench: Bench, site: Site) -> list[Root]:
    """Return the roots of what `site` hides."""
    return roots_among(bench, mask_closure(bench, site))


@once
def all_roots(bench: Bench) -> list[Root]:
    """Return the roots of the whole recording, those that nothing reads among them."""
    return roots_among(bench, set(bench.recording.graph.nodes))


def roots_among(bench: Bench, nodes: Collection[Node]) -> list[Root]:
    """Return the roots among `nodes`, in recorded order."""
    found = [
        root
        for node in sorted(nodes, key=bench.dependence.order.__getitem__)
        if bench.dependence.on_data(node) and (root := _root(bench, node)) is not None
    ]
    made = {r.node for r in found}
    return [r for r in found if not (bench.dependence.ancestors([r.node]) - {r.node}) & made]


def whole(bench: Bench, root: Root, value: float) -> Tensor:
    """Return `root` with one value everywhere."""
    at = bench.replay.base(root.node)
    return torch.full_like(at, bool(value) if at.dtype == torch.bool else value)


@once
def _root(bench: Bench, node: Node) -> Root | None:
    value = bench.recording.values.get(node)
    if not isinstance(value, Tensor) or value.numel() < 2:
        return None
    if node.op == "placeholder":
        return _argument(bench, node, value)
    if op(node) not in COMPARISONS | CASTS:
        return None
    if value.dtype != torch.bool and not (op(node) == "sign" and bool((value >= 0).all())):
        return None
    data = [
        n for n in operands(node) if is_tensor(bench.recording, n) and bench.dependence.on_data(n)
    ]
    if not data or any(bench.recording.values[n].dtype == torch.bool for n in data):
        return None
    return _comparison(bench, node, data)


def _argument(bench: Bench, node: Node, value: Tensor) -> Root | None:
    """Return a mask that was passed as it is."""
    if value.dtype.is_complex or any(
        op(u) in ("embedding", "embedding_bag") for u in bench.dependence.users(node)
    ):
        return None
    name = bench.recording.input_names[bench.recording.placeholders.index(node)]
    numbers = set(value.flatten()[:4096].tolist())
    samples, positions = _by_shape(bench, tuple(value.shape))
    if numbers <= {0, 1}:
        return Root(node, name, node, "", None, 0.0, 1.0, False, samples, positions, None)
    if (
        value.is_floating_point()
        and max(numbers) == 0
        and len(numbers) == 2
        and min(numbers) <= -HIDING
    ):
        low = min(numbers)
        return Root(node, name, node, "", None, low, 0.0, True, samples, positions, None)
    return None


def _comparison(bench: Bench, node: Node, data: list[Node]) -> Root | None:
    """Return what a comparison of ids, lengths or data makes."""
    sized = bench.recording.values[node].shape
    nothing = torch.full(sized, -1, dtype=torch.long)
    samples, positions = nothing, nothing
    entry: Entry | None = None
    behind: set[Node] = set()
    for one in data:
        above = bench.dependence.ancestors([one])
        behind |= {p for p in bench.recording.placeholders if p in above}
    if not behind:
        return None
    placeholder = next(p for p in bench.recording.placeholders if p in behind)
    name = bench.recording.input_names[bench.recording.placeholders.index(placeholder)]
    if len(data) == 1 and len(behind) == 1:
        (one,) = data
        if is_number(bench.recording, placeholder):
            found = _from_data(bench, one)
        else:
            found = _from_integers(bench, one, placeholder)
        if found is not None:
            samples, positions, entry = (
                found[0].expand(sized),
                found[1].expand(sized),
                found[2],
            )
        if not bool((positions >= 0).all()):
            counted = _counted(bench, node, one)
            positions = positions if counted is None else counted
    constant = _constant(bench, node)
    return Root(
        node, name, placeholder, op(node), constant, 0.0, 1.0, False, samples, positions, entry
    )


def _from_integers(
    bench: Bench, node: Node, placeholder: Node
) -> tuple[Tensor, Tensor, Entry | None] | None:
    """Return sample and position of each element of `node`, a layout of an integer argument."""
    at = bench.recording.values[placeholder]
    flat = places(bench, node, placeholder)
    if flat is None:
        return None
    for entry in entries_of(bench):
        read = entry.node.args[0] if entry.node.args else None
        if op(entry.node) != "embedding" or entry.axis is None or not isinstance(read, Node):
            continue
        candidates = [n for n in operands(entry.node) if not is_number(bench.recording, n)]
        if len(candidates) != 1 or placeholder not in bench.dependence.ancestors(candidates):
            continue
        rows = places(bench, candidates[0], placeholder)
        if rows is None or rows.dim() != 2:
            continue
        samples = torch.full((at.numel(),), -1, dtype=torch.long)
        positions = samples.clone()
        axis = entry.axis
        for place, index in zip(rows.flatten().tolist(), _grid(tuple(rows.shape)), strict=True):
            samples[place], positions[place] = index[1 - axis], index[axis]
        return samples[flat], positions[flat], entry
    samples, positions = _by_shape(bench, tuple(at.shape))
    return samples.flatten()[flat], positions.flatten()[flat], None


def _grid(sizes: tuple[int, ...]) -> list[list[int]]:
    grids = torch.meshgrid(*(torch.arange(n) for n in sizes), indexing="ij")
    return torch.stack([g.flatten() for g in grids], -1).tolist()


def places(bench: Bench, node: Node, placeholder: Node) -> Tensor | None:
    """Return the flat place in an integer argument that each element of `node` holds, if one each."""
    if node is placeholder:
        at = bench.recording.values[placeholder]
        return torch.arange(at.numel()).reshape(at.shape)
    path = bench.dependence.between(placeholder, node)
    if any(op(n) not in LAYOUT and not _is_shift(n) for n in path):
        return None
    at = bench.recording.values[placeholder]
    numbers = torch.arange(at.numel()).reshape(at.shape).to(at.dtype)
    if at.dtype in (torch.bool, torch.uint8, torch.int8):
        return None
    found, shift = (
        bench.replay.run([node], {placeholder: v})[0] for v in (numbers, torch.zeros_like(numbers))
    )
    return torch.as_tensor(found - shift).long()


def _is_shift(node: Node) -> bool:
    """Return whether a node adds a number to all elements, or takes one away: ``lengths - 1``."""
    return (
        op(node) in ("add", "sub")
        and len(node.all_input_nodes) == 1
        and node.args[0] in (node.all_input_nodes)
    )


def _from_data(bench: Bench, node: Node) -> tuple[Tensor, Tensor, Entry | None] | None:
    """Return sample and position of each element of `node`, made from the numbers of an entry."""
    if not is_number(bench.recording, node) or bench.dependence.parameters(node):
        return None
    for entry in entries_of(bench):
        if entry.axis is None or entry.node not in bench.dependence.ancestors([node]):
            continue
        traced = trace(bench.replay, entry.node, node)
        first = next((a for a in range(len(traced.shape) - 1) if a != entry.axis), None)
        if first is None or not (traced.clean[entry.axis] and traced.clean[first]):
            continue
        return traced.index[first], traced.index[entry.axis], entry
    return None


def _counted(bench: Bench, node: Node, data: Node) -> Tensor | None:
    """Return the positions that a comparison of lengths with 0, 1, 2, ... counts."""
    others = [n for n in operands(node) if n is not data and is_tensor(bench.recording, n)]
    if len(others) != 1:
        return None
    numbers = bench.recording.values[others[0]]
    sized = bench.recording.values[node].shape
    if numbers.dtype == torch.bool or numbers.numel() < 2:
        return None
    counted = numbers.expand(sized) if numbers.dim() <= len(sized) else None
    if counted is None or not torch.equal(
        counted, counted.round() if counted.is_floating_point() else counted
    ):
        return None
    places = sorted(set(numbers.flatten().tolist()))
    n = len(places)
    if n not in numbers.shape or places not in (list(range(n)), list(range(1, n + 1))):
        return None
    if int((numbers.amax(-1) - numbers.amin(-1)).max()) + 1 not in (1, n):
        return None  # no counting along one axis
    return torch.as_tensor(counted.long() - int(numbers.min()))


def _constant(bench: Bench, node: Node) -> float | None:
    """Return the number that everything is compared with, None if there is no such number."""
    plain = [a for a in node.args if isinstance(a, int | float) and not isinstance(a, bool)]
    if op(node) in CASTS:
        return 0.0
    if len(plain) == 1:
        return float(plain[0])
    fixed = [
        bench.recording.values[n]
        for n in operands(node)
        if is_tensor(bench.recording, n) and not bench.dependence.on_data(n)
    ]
    return float(fixed[0]) if len(fixed) == 1 and fixed[0].numel() == 1 else None


def _by_shape(bench: Bench, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return samples and positions by the sizes of an argument: (B, T), (B, ..., T) or (B,)."""
    nothing = torch.full(sizes, -1, dtype=torch.long)
    samples, positions = nothing, nothing
    batches = batch_sizes(bench)
    lengths = position_sizes(bench)
    grids = torch.meshgrid(*(torch.arange(n) for n in sizes), indexing="ij") if sizes else ()
    if sizes and sizes[0] in batches and not (len(sizes) <= 2 and sizes[0] in lengths):
        samples = grids[0]
        if len(sizes) >= 2 and sizes[-1] in lengths:
            positions = grids[-1]
    elif (
        len(sizes) == 2 and sizes[1] in batches and sizes[0] in lengths and sizes[1] not in lengths
    ):
        samples, positions = grids[1], grids[0]
    elif len(sizes) >= 2 and sizes[-1] in lengths:
        positions = grids[-1]
    return samples, positions


@once
def batch_sizes(bench: Bench) -> set[int]:
    """Return the numbers of samples that the entries have (of more than one)."""
    return {
        s[a]
        for e in entries_of(bench)
        if e.axis is not None
        for s in (tuple(bench.recording.values[e.node].shape),)
        for a in _sample_axes(len(s), e.axis)
        if s[a] > 1
    }


@once
def position_sizes(bench: Bench) -> set[int]:
    """Return the numbers of positions that the entries have."""
    found = {
        bench.recording.values[e.node].shape[e.axis]
        for e in entries_of(bench)
        if e.axis is not None
    }
    return found


def _sample_axes(rank: int, along: int) -> tuple[int, ...]:
    """Return the axis of (B, T, C), (T, B, C) or (B, h, T, d) that holds samples."""
    if rank == 3:
        return (1 - along,) if along < 2 else ()
    return (0,) if along != 0 else ()
