"""Find the attention modules among a checkpoint's tensors, and fold those that are alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mha_lint.dims.data import Checkpoint, Tensor
from mha_lint.dims.names import is_attention, is_cross, split_name
from mha_lint.dims.packed import Projection, projection, shape_text

_STATE_SPACE = frozenset(
    {"A_log", "conv1d", "dt_bias", "short_conv", "q_conv1d", "k_conv1d", "conv_kernel_layer"}
)
"""Beside these, q, k and v are those of a recurrence or convolution, not of attention alone."""
_HEAD_LISTS = re.compile(r"(?:\w*_)?(?:heads?|attns?)")


@dataclass(frozen=True, slots=True)
class Hint:
    """A tensor of the module that tells a size, by convention: `unknown` = `value`."""

    unknown: str
    value: int
    shown: str


@dataclass(slots=True)
class Module:
    """One attention module.

    ``heads``: how many such modules stand in one list, each one head. ``misfits``: tensors that are
    projections by their names and cannot be by their shapes.
    """

    path: str
    projections: dict[str, Projection]
    hints: tuple[Hint, ...] = ()
    heads: int | None = None
    recurrent: bool = False
    misfits: tuple[str, ...] = ()

    @property
    def cross(self) -> bool:
        """Tell whether its name says that keys come from elsewhere."""
        return is_cross(self.path)

    @property
    def signature(self) -> tuple[object, ...]:
        """Return what must agree for two modules to be alike."""
        shapes = tuple((r, p.shape, p.bias, p.form) for r, p in sorted(self.projections.items()))
        hints = tuple(sorted((h.unknown, h.value) for h in self.hints if h.unknown == "norm"))
        return (shapes, hints, self.heads, self.recurrent)


@dataclass(slots=True)
class Family:
    """Modules at the same place of different layers; ``kinds`` holds one entry for each shape."""

    pattern: str
    kinds: list[list[Module]] = field(default_factory=list)


def find_modules(checkpoint: Checkpoint) -> list[Module]:
    """Return the attention modules of a checkpoint in the order of its names."""
    owners: dict[str, dict[str, dict[str, Tensor]]] = defaultdict(lambda: defaultdict(dict))
    components: dict[tuple[str, str], str] = {}
    children: dict[str, list[Tensor]] = defaultdict(list)
    for name in sorted(checkpoint.tensors, key=_natural):
        tensor = checkpoint.tensors[name]
        parts = name.split(".")
        for i in range(len(parts)):
            if i < len(parts) and len(parts) - i <= 4:
                children[".".join(parts[:i])].append(tensor)
        split = split_name(name)
        if split is not None:
            owner, component, role, rest = split
            key = _key(component)
            owners[owner][key][rest] = tensor
            components[owner, key] = role
    modules = []
    for owner in owners:
        module = _module(owner, owners, components, children[owner])
        if module is not None:
            modules.append(module)
    return [_sliced(m, checkpoint.slices) for m in _join_heads(modules, owners, components)]


def _key(component: str) -> str:
    return re.sub(r"_(weight|bias)$", "", component)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(p), "") if p.isdecimal() and len(p) < 10 else (1, 0, p) for p in name.split(".")
    ]


def _module(
    owner: str,
    owners: dict[str, dict[str, dict[str, Tensor]]],
    components: dict[tuple[str, str], str],
    children: list[Tensor],
) -> Module | None:
    found: dict[str, Projection] = {}
    misfits: list[str] = []
    for key, parts in owners[owner].items():
        role = components[owner, key]
        if role in {"o", "o?"} or role.endswith("_norm"):
            continue
        made = projection(role, owner, key, parts)
        if made is None:
            start = len(owner) + 1 if owner else 0
            misfits += [
                f"{t.name[start:]} {shape_text(t.shape)}"
                for rest, t in parts.items()
                if rest.endswith("weight") and role != "joined?"
            ]
            continue
        if role == "joined?":
            made = _joined(owner, made)
            role = "qkv"
        if made is not None:
            found.setdefault(role, made)
    if not _is_module(found):
        return None
    found.update(_output(owner, owners, components, found))
    names = {t.name[len(owner) + 1 if owner else 0 :].split(".")[0] for t in children}
    recurrent = bool(names & _STATE_SPACE) or _one_query(found.get("qkv"))
    return Module(
        owner, found, tuple(_hints(owner, children, found)), None, recurrent, tuple(misfits)
    )


def _joined(owner: str, made: Projection) -> Projection | None:
    """Take a map called ``in_proj`` or ``c_attn`` for joined q, k and v if shape and place agree."""
    if made.rows is None or made.columns is None:
        return made if is_attention(owner) or made.form != "plain" else None
    tripled = made.rows == 3 * made.columns
    if not tripled and made.columns == 3 * made.rows and made.bias is None:
        tripled = True
    last = owner.rsplit(".", 1)[-1]
    telling = is_attention(owner) or is_attention(made.name) or last == "self"
    return (
        made
        if (tripled and (telling or not owner)) or (telling and made.rows > made.columns)
        else None
    )


def _one_query(joined: Projection | None) -> bool:
    """Tell whether a joined projection makes one score, a key and a value (separable attention)."""
    if joined is None or len(joined.shape) < 2:
        return False
    return joined.rows == 2 * min(joined.shape[:2]) + 1


def _is_module(found: dict[str, Projection]) -> bool:
    roles = set(found)
    adapted = any(found[r].form in {"LoRA", "IA3"} for r in roles & {"q", "k", "v", "qkv", "kv"})
    return bool(
        "qkv" in roles
        or "qk" in roles
        or "kv_b" in roles
        or ("q" in roles and roles & {"k", "kv"})
        or ("q_b" in roles and "kv_a" in roles)
        or (adapted and roles & {"q", "k", "v"})
    )


def _output(
    owner: str,
    owners: dict[str, dict[str, dict[str, Tensor]]],
    components: dict[tuple[str, str], str],
    found: dict[str, Projection],
) -> dict[str, Projection]:
    """Return {"o": the output projection}, which may stand beside the module or in its parent."""
    parent, _, last = owner.rpartition(".")
    places = [owner, f"{owner}.output"]
    if last == "self" or (is_attention(last) and is_attention(parent.rsplit(".", 1)[-1])):
        places += [parent, f"{parent}.output"]
    candidates: list[Projection] = []
    for place in places:
        for key, parts in owners.get(place, {}).items():
            role = components[place, key]
            if role in {"o", "o?"}:
                made = projection(role, place, key, parts)
                if made is not None:
                    candidates.append(made)
    if not candidates:
        return {}
    widths = {p.rows for r, p in found.items() if r in {"q", "v"}} | {
        p.rows // 3 for r, p in found.items() if r == "qkv" and p.rows
    }
    named = [c for c in candidates if c.role == "o"] or candidates
    best = min(named, key=lambda c: c.columns not in widths)
    return {"o": best}


def _hints(owner: str, children: list[Tensor], found: dict[str, Projection]) -> Iterator[Hint]:
    """Yield the sizes that tensors beside the projections tell, each by its name and its shape."""
    start = len(owner) + 1 if owner else 0
    for tensor in children:
        tail, shape = tensor.name[start:], tensor.shape
        shown = f"{tail} ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
        split = split_name(tensor.name)
        role = split[2] if split and split[0] == owner else ""
        if role in {"q_norm", "k_norm"} and tail.endswith("weight"):
            own = found.get(role[0])
            wide = own.rows if own is not None else None
            if len(shape) == 1 and shape[0] > 1 and shape[0] != wide:
                yield Hint("norm", shape[0], shown)
            elif len(shape) == 2 and shape[0] * shape[1] == wide:
                yield Hint("h" if role == "q_norm" else "h_kv", shape[0], shown)
        elif (tail.endswith("relative_attention_bias.weight") and len(shape) == 2) or (
            tail.endswith("relative_position_bias_table") and len(shape) == 2
        ):
            yield Hint("h", shape[1], shown)
        elif (
            (tail in {"sinks", "sink"} and len(shape) == 1)
            or (re.fullmatch(r"(pos_)?bias_[uv]|r_[wr]_bias", tail) and len(shape) == 2)
            or (tail == "logit_scale" and len(shape) == 3 and shape[1:] == (1, 1))
        ):
            yield Hint("h", shape[0], shown)
        elif tail.endswith("rotary_emb.inv_freq") and len(shape) == 1:
            yield Hint("rotary", 2 * shape[0], shown)


def _join_heads(
    modules: list[Module],
    owners: dict[str, dict[str, dict[str, Tensor]]],
    components: dict[tuple[str, str], str],
) -> list[Module]:
    """Make one module of those that stand in a list of single heads."""
    lists: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        parts = module.path.split(".")
        if len(parts) >= 2 and parts[-1].isdigit() and _HEAD_LISTS.fullmatch(parts[-2]):
            lists[".".join(parts[:-1])].append(module)
    joined: dict[str, Module] = {}
    for place, members in lists.items():
        alike = {m.signature for m in members}
        if len(members) < 2 or len(alike) > 1 or "o" in members[0].projections:
            continue
        parent = place.rpartition(".")[0]
        projections = dict(members[0].projections)
        projections.update(_output(parent, owners, components, projections))
        first = Module(place, projections, members[0].hints, heads=len(members))
        joined[members[0].path] = first
        for other in members[1:]:
            joined[other.path] = first
    kept: list[Module] = []
    for module in modules:
        module = joined.get(module.path, module)
        if not any(module is other for other in kept[-1:]):
            kept.append(module)
    return kept


def _sliced(module: Module, slices: int) -> Module:
    """Undo the slicing of model-parallel files: rows of q, k and v, columns of the output."""
    if slices == 1:
        return module
    for role, p in module.projections.items():
        rows = p.rows * slices if p.rows and role != "o" else p.rows
        columns = p.columns * slices if p.columns and role == "o" else p.columns
        module.projections[role] = Projection(
            p.role, p.name, (rows or 0, columns or 0), rows, columns, p.bias and p.bias * slices
        )
    return module


def fold(modules: Iterable[Module]) -> list[Family]:
    """Return families of modules that differ in numbers of their path alone."""
    families: dict[str, Family] = {}
    for module in modules:
        pattern = re.sub(r"(?<![^.])\d{1,9}(?![^.])", "#", module.path)
        family = families.setdefault(pattern, Family(pattern))
        for kind in family.kinds:
            if kind[0].signature == module.signature:
                kind.append(module)
                seen = kind[0].hints
                kind[0].hints = (*seen, *(h for h in module.hints if h not in seen))
                break
        else:
            family.kinds.append([module])
    return list(families.values())


def place(modules: list[Module]) -> str:
    """Return the path of modules that are alike, with ranges: ``layers.0-31.self_attn``."""
    rows = [m.path.split(".") for m in modules]
    out = []
    for column in zip(*rows, strict=True):
        values = list(dict.fromkeys(column))
        out.append(values[0] if len(values) == 1 else ranges([int(v) for v in values]))
    return ".".join(out) or "."


def ranges(numbers: list[int]) -> str:
    """Return numbers as ranges: ``0-3,5``."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
