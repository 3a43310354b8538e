"""Which node stands for the present value of each tensor.

A change in place gives its tensor a new node. Other tensors on the same storage are brought up to
date only when they are next used: a view that is never read again costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mha_lint.capture.aliases import Geometry, ReadThrough, WriteThrough, covers, overlap

Emit = Callable[..., fx.Node]
"""``emit(op, target, args, value) -> node``."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a storage: when, what the changed tensor became, and which part it shows."""

    serial: int
    node: fx.Node
    geometry: Geometry


def storage_key(x: torch.Tensor) -> int | None:
    """Return the identity of the storage of `x`; None when it has none (sparse tensors)."""
    try:
        return int(x.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


class Bindings:
    """Tensors by identity -> nodes, up to date with all changes in place so far."""

    def __init__(self, values: dict[fx.Node, Any], emit: Emit) -> None:
        """Write snapshots into `values`; `emit` adds a node to the graph."""
        self._values = values
        self._emit = emit
        self._nodes: dict[int, fx.Node] = {}
        self._bound_at: dict[int, int] = {}
        self._changes: dict[int | None, list[Change]] = {}
        self._log: list[tuple[fx.Node, torch.Tensor]] = []
        self._indexed = 0
        self._fresh: dict[int | None, list[tuple[fx.Node, torch.Tensor]]] = {}
        """By storage: values that no snapshot was taken of."""
        self._sharing: dict[int | None, list[torch.Tensor]] = {}
        self.serial = 0

    def bind(self, x: torch.Tensor, node: fx.Node) -> None:
        """Let `node` stand for the present value of `x`, which is kept alive."""
        key = id(x)
        self._nodes[key] = node
        self._log.append((node, x))
        if self.serial:
            self._bound_at[key] = self.serial

    def get(self, x: torch.Tensor) -> fx.Node | None:
        """Return the node of the present value of `x`, or None for a tensor never seen."""
        key = id(x)
        node = self._nodes.get(key)
        if node is not None and self.serial and self._bound_at.get(key, 0) < self.serial:
            return self._refresh(x, node)
        return node

    def knows(self, x: torch.Tensor) -> bool:
        """Tell whether `x` has a node."""
        return id(x) in self._nodes

    def changed_before(self, x: torch.Tensor) -> bool:
        """Tell whether the storage of `x` was changed through another tensor."""
        return bool(self._changes) and storage_key(x) in self._changes

    def snapshot(self, x: torch.Tensor) -> None:
        """Copy the recorded values that a change of `x` is about to overwrite."""
        self._index()
        for node, tensor in self._fresh.pop(storage_key(x), ()):
            if self._values.get(node) is tensor:
                self._values[node] = tensor.detach().clone()

    def view_of_known(self, x: torch.Tensor) -> fx.Node | None:
        """Return a node for `x` when a known tensor shows all of its memory, and bind it."""
        self._index()
        key = storage_key(x)
        mine = Geometry.of(x)
        for known in reversed(self._sharing.get(key, ()) if key is not None else ()):
            theirs = Geometry.of(known)
            node = self.get(known) if theirs.dtype == mine.dtype and covers(theirs, mine) else None
            if node is not None:
                same = theirs == mine
                target = torch.Tensor.detach if same else ReadThrough(theirs, mine)
                new = self._emit("detach" if same else "as_strided", target, (node,), x)
                self.bind(x, new)
                return new
        return None

    def _index(self) -> None:
        for node, tensor in self._log[self._indexed :]:
            key = storage_key(tensor)
            self._fresh.setdefault(key, []).append((node, tensor))
            self._sharing.setdefault(key, []).append(tensor)
        self._indexed = len(self._log)

    def change(self, x: torch.Tensor, node: fx.Node) -> None:
        """Note that `x` was changed in place, and is `node` from now on."""
        self.serial += 1
        self._changes.setdefault(storage_key(x), []).append(
            Change(self.serial, node, Geometry.of(x))
        )
        self.bind(x, node)

    def _refresh(self, x: torch.Tensor, node: fx.Node) -> fx.Node:
        bound = self._bound_at.get(id(x), 0)
        changes = self._changes.get(storage_key(x))
        pending = [c for c in changes if c.serial > bound] if changes else []
        if pending:
            mine = Geometry.of(x)
            relevant = _relevant(pending, mine)
            for change in relevant:
                node = self._apply(change, mine, node, x, last=change is relevant[-1])
            self._nodes[id(x)] = node
        self._bound_at[id(x)] = self.serial
        return node

    def _apply(
        self, change: Change, mine: Geometry, node: fx.Node, x: torch.Tensor, *, last: bool
    ) -> fx.Node:
        theirs = change.geometry
        if theirs == mine:
            return change.node
        if theirs.dtype != mine.dtype:
            return self._emit("view_write", _reinterpreted, (node, change.node), x)
        if covers(theirs, mine):
            new = self._emit("view_read", ReadThrough(theirs, mine), (change.node,), x)
        elif overlap(theirs, mine):
            new = self._emit("view_write", WriteThrough(mine, theirs), (node, change.node), x)
        else:
            return node
        if not last:  # `x` shows later changes already
            target: Any = new.target
            self._values[new] = target(*[self._values[n] for n in new.all_input_nodes])
            return new
        # Later changes of this storage must not show in the recorded value.
        self._log.append((new, x))
        return new


def _relevant(pending: list[Change], mine: Geometry) -> list[Change]:
    """Drop changes that a later one overwrites as a whole."""
    for place in range(len(pending) - 1, -1, -1):
        theirs = pending[place].geometry
        if theirs == mine or (theirs.dtype == mine.dtype and covers(theirs, mine)):
            return pending[place:]
    return pending


def _reinterpreted(old: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Return `old`: a change through a view of another type cannot be followed."""
    return old
