"""Keep a few layers of a config: at least one of every distinct kind."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mha_lint.targets.pretrained.leaves import Leaf, Path, leaves, lists, scopes
from mha_lint.targets.pretrained.roles import Role

FEWEST = 2
MOST_KINDS = 6
"""More kinds than this are not kinds: each layer has its own value."""


@dataclass(slots=True)
class Stack:
    """The layers of one part: how many there were, and which of them stay."""

    length: int
    chosen: list[int] = field(default_factory=list)

    def before(self, index: int) -> int:
        """Return the new index of what came before layer `index`."""
        return sum(one < index for one in self.chosen)


def fewer_layers(values: dict[str, Any], undone: frozenset[str]) -> dict[str, Any]:
    """Return a copy of a config's dict with fewer layers, its lists and indices made to fit."""
    if Role.LAYERS in undone:
        return values
    result = copy.deepcopy(values)
    found = leaves(result)
    stacks: dict[Path, Stack] = {}
    for path, part in scopes(result):
        own = [x for x in found if x.scope == path and not {x.key, x.role} & undone]
        stack = _shorten(part, own)
        if stack is not None:
            stacks[path] = stack
    for path, part in scopes(result):
        own = [x for x in found if x.scope == path and not {x.key, x.role} & undone]
        below = [s for p, s in stacks.items() if p[: len(path)] == path and p != path]
        if path not in stacks:
            _follow(part, own, below or list(stacks.values()))
        elif below:
            _follow(part, _beyond(own, stacks[path].length), below)
        if part.get("out_indices") is not None:  # the names of stages follow from the indices
            for name in ("out_features", "stage_names"):
                part.pop(name, None)
    return result


def _shorten(part: dict[str, Any], own: list[Leaf]) -> Stack | None:
    """Shorten the layers of one part in place, and return its main stack."""
    _periods(part, own)
    for leaf in own:
        if leaf.role is Role.DEPTHS:
            _set(part, leaf, min(leaf.value, 2 if _windowed(own) else 1))
    _stage_indices(part, own)
    counts = [leaf for leaf in own if leaf.role is Role.LAYERS and leaf.value > 0]
    if not counts:
        return None
    main = _main(part, counts)
    stacks: dict[int, Stack] = {}
    for length in sorted({leaf.value for leaf in counts}):
        stacks[length] = _chosen(part, own, length, main=length == main)
    for leaf in counts:
        _set(part, leaf, len(stacks[leaf.value].chosen))
    stack = stacks[main]
    indices = _indices(part, own, stack)
    _cut_lists(part, stacks, indices)
    return stack


def _stage_indices(part: dict[str, Any], own: list[Leaf]) -> None:
    """Let numbers of blocks, counted over all stages, name a block of the same stage."""
    depths = [leaf for leaf in own if leaf.role is Role.DEPTHS and leaf.in_list]
    old = [x.value for x in depths if depths and x.key == depths[0].key]
    if not old:
        return
    new = list(part.get(depths[0].key) or ())
    for key, items, holder in list(lists(part)):
        if "out_" in key or not _is_indices(key, items, sum(old)) or len(new) != len(old):
            continue
        moved: dict[int, None] = {}
        for item in items:
            stage = next((s for s in range(len(old)) if item < sum(old[: s + 1])), len(old) - 1)
            offset = min(item - sum(old[:stage]), new[stage] - 1)
            moved[sum(new[:stage]) + offset] = None
        holder[key] = list(moved)


def _main(part: dict[str, Any], counts: list[Leaf]) -> int:
    """Return the length that lists go with, else that of the plainest key."""
    lengths = [len(items) for _, items, _ in lists(part)]
    listed = [leaf.value for leaf in counts if leaf.value > 3 and leaf.value in lengths]
    if listed:
        return max(listed)
    plain = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers")
    by_key = {leaf.key: leaf.value for leaf in counts}
    return next((by_key[k] for k in plain if k in by_key), max(by_key.values()))


def _chosen(part: dict[str, Any], own: list[Leaf], length: int, *, main: bool) -> Stack:
    """Choose one layer of each kind, the first ones, and two layers at least."""
    columns: list[list[Hashable]] = []
    for key, items, _ in lists(part):
        if _is_indices(key, items, length) or len(items) != length:
            continue
        if all(isinstance(i, Hashable) for i in items) and len(set(items)) <= MOST_KINDS:
            columns.append(items)
    forced: set[int] = set()
    for key, items, _ in lists(part) if main else ():
        if not _is_indices(key, items, length):
            continue
        inside = {i % length if i < 0 else min(i, length - 1) for i in items}
        if _counts(key):
            forced |= inside
        columns.append([i in inside for i in range(length)])
    for leaf in own if main else ():
        if leaf.role is Role.THRESHOLD and 0 < leaf.value < length:
            columns.append([i < leaf.value for i in range(length)])
        if leaf.role is Role.TAIL and 0 < leaf.value < length:
            columns.append([i < length - leaf.value for i in range(length)])
    rows = list(zip(*columns, strict=True)) if columns else [()] * length
    if len(set(rows)) > MOST_KINDS:
        firsts = {column.index(value) for column in columns for value in set(column)}
    else:
        firsts = {rows.index(row) for row in set(rows)}
    chosen = firsts | forced
    for index in range(length):
        if len(chosen) >= min(FEWEST, length):
            break
        chosen.add(index)
    return Stack(length, sorted(chosen))


def _cut_lists(part: dict[str, Any], stacks: dict[int, Stack], indices: set[str]) -> None:
    for key, items, holder in list(lists(part)):
        stack = stacks.get(len(items))
        if stack is None or key in indices or len(items) < 2:
            continue
        if len(items) <= 3 and not _per_layer(key):
            continue
        holder[key] = [items[i] for i in stack.chosen]
    for key, value in part.items():
        if not (isinstance(value, dict) and value and "layer" in key):
            continue
        if all(str(k).isdigit() for k in value):
            main = max(stacks.values(), key=lambda s: s.length)
            digits = {int(k): v for k, v in value.items()}
            part[key] = {str(n): digits[i] for n, i in enumerate(main.chosen) if i in digits}


def _indices(part: dict[str, Any], own: list[Leaf], stack: Stack) -> set[str]:
    """Make the numbers that name layers fit the shorter stack, and return the lists of such."""
    found: set[str] = set()
    for leaf in own:
        if leaf.role is Role.THRESHOLD and leaf.value > 0:
            _set(part, leaf, stack.before(leaf.value))
        elif leaf.role is Role.TAIL:
            _set(part, leaf, len(stack.chosen) - stack.before(stack.length - leaf.value))
        elif leaf.role is Role.LAYER_INDEX and not leaf.in_list:
            _set(part, leaf, _moved(leaf.value, stack))
    for key, items, holder in list(lists(part)):
        if _is_indices(key, items, stack.length):
            found.add(key)
            if not _counts(key):
                items = [i for i in items if i in stack.chosen or i < 0]
            holder[key] = [_moved(i, stack) for i in items]
    return found


def _beyond(own: list[Leaf], length: int) -> list[Leaf]:
    """Return the layer indices that name more layers than a part has itself."""
    lists = {x.path[:-1] for x in own if x.in_list and abs(x.value) > length}
    return [x for x in own if (x.path[:-1] in lists if x.in_list else abs(x.value) > length)]


def _follow(part: dict[str, Any], own: list[Leaf], below: list[Stack]) -> None:
    """Make a part's indices fit the layers of another part."""
    if any(leaf.role is Role.DEPTHS and leaf.in_list for leaf in own):
        return  # they name stages
    by_list: dict[Path, list[Leaf]] = {}
    for leaf in own:
        if leaf.role is Role.LAYER_INDEX:
            by_list.setdefault(leaf.path[:-1] if leaf.in_list else leaf.path, []).append(leaf)
    for items in by_list.values():
        values = sorted({leaf.value for leaf in items})
        fitting = [s for s in below if max(map(abs, values)) <= s.length]
        if not fitting:
            continue
        stack = max(fitting, key=lambda s: s.length)
        last = len(stack.chosen) - len(values)
        for leaf in items:
            moved = _moved(leaf.value, stack)
            if leaf.in_list and leaf.value >= 0:  # different layers stay different
                moved = max(0, last + values.index(leaf.value))
            _set(part, leaf, moved)


def _moved(index: int, stack: Stack) -> int:
    if index < 0:
        return max(index, -len(stack.chosen))
    return stack.before(index)


def _periods(part: dict[str, Any], own: list[Leaf]) -> None:
    """Let what comes every n-th layer come every second."""
    by_key = {leaf.key: leaf for leaf in own}
    for leaf in own:
        if leaf.role is not Role.PERIOD or leaf.value < 2:
            continue
        if leaf.key.endswith("_offset"):
            period = by_key.get(leaf.key.replace("_offset", "_period"))
            if period is not None:
                _set(part, leaf, leaf.value * 2 // period.value)
        else:
            _set(part, leaf, 2)


def _is_indices(key: str, items: list[Any], length: int) -> bool:
    """Tell whether a list names layers by number."""
    from mha_lint.targets.pretrained.roles import role_of

    if not all(isinstance(i, int) and not isinstance(i, bool) for i in items):
        return False
    if not all(-length <= i <= length for i in items) or len(set(items)) < len(items):
        return False
    return role_of(key, 0, True) is Role.LAYER_INDEX or (len(items) > 3 and _ascending(items))


def _ascending(items: list[int]) -> bool:
    return items == list(range(len(items)))


def _counts(key: str) -> bool:
    """Tell whether the number of a list's entries matters: features are taken at each."""
    return any(part in key for part in ("out_", "deepstack", "feature", "select", "collect"))


def _per_layer(key: str) -> bool:
    return "layer" in key or "types" in key or "rope" in key


def _windowed(own: Iterable[Leaf]) -> bool:
    return any("window" in leaf.key for leaf in own)


def _set(part: dict[str, Any], leaf: Leaf, value: int) -> None:
    """Replace the leaf's integer within its part; a list may have become shorter meanwhile."""
    holder: Any = part
    steps = leaf.path[len(leaf.scope) :]
    if leaf.in_list:
        for step in steps[:-2]:
            holder = holder[step]
        items, index = list(holder[steps[-2]]), steps[-1]
        if isinstance(index, int) and index < len(items):
            items[index] = value
            holder[steps[-2]] = items
        return
    for step in steps[:-1]:
        holder = holder[step]
    holder[steps[-1]] = value
