"""Two checkpoints of one model, such as an adapter and its base: are their projections as wide?"""

from __future__ import annotations

from collections import defaultdict

from mha_lint.dims.attention import Module, find_modules, place
from mha_lint.dims.data import Checkpoint, Contradiction


def compare_checkpoints(first: Checkpoint, second: Checkpoint) -> list[Contradiction]:
    """Return the projections that stand at the same place of both and have other widths."""
    by_end: dict[str, list[Module]] = defaultdict(list)
    for module in find_modules(first):
        parts = module.path.split(".")
        for i in range(len(parts)):
            by_end[".".join(parts[i:])].append(module)
    differing: dict[tuple[str, str, str], list[Module]] = defaultdict(list)
    for module in find_modules(second):
        same = _same_place(module.path, by_end)
        if same is None:
            continue
        for role, p in module.projections.items():
            other = same.projections.get(role)
            if other is None:
                continue
            sides = ((p.rows, other.rows), (p.columns, other.columns))
            if any(a and b and a != b for a, b in sides):
                differing[role, other.shown, p.shown].append(module)
    found = []
    for (_, theirs, ours), modules in differing.items():
        where = place(modules)
        message = f"{where}: {first.label} has {theirs}, {second.label} has {ours}"
        found.append(Contradiction(message, (first.label, second.label), where))
    return found


def _same_place(path: str, by_end: dict[str, list[Module]]) -> Module | None:
    """Return the one module whose path ends like `path`: a wrapper only adds to the front."""
    parts = path.split(".")
    for i in range(len(parts)):
        found = by_end.get(".".join(parts[i:]), [])
        if len(found) == 1:
            return found[0]
    return None
