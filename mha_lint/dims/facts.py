"""What the shapes of one attention module say, as relations between head sizes.

Where a layout leaves room, there are several readings, the usual one first: a later one counts only
if the shapes rule out those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mha_lint.dims.attention import Module
from mha_lint.dims.config import Section
from mha_lint.dims.data import NAMES, Divides, Equation, Fact, Relation
from mha_lint.dims.packed import Projection, shape_text

EVEN_GROUPS = Divides("h_kv", "h")
SAME_WIDTH = Equation(((1, ("d_v",)), (-1, ("d_k",))), 0)


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a module's shapes.

    ``background``: what attention of this form demands anyway; ``remark``: what is unusual;
    ``loose``: the output's own width is left out, and, where q, k and v are made from one width,
    it is ``output``.
    """

    layout: str
    facts: tuple[Fact, ...]
    background: tuple[Relation, ...]
    remark: str = ""
    loose: bool = False
    output: int | None = None


def product(value: int, *names: str) -> Equation:
    """Return: the product of the named unknowns is `value`."""
    return Equation(((1, names),), value)


def readings(module: Module) -> list[Reading]:
    """Return the readings of a module's shapes, the usual one first."""
    usual = _reading(module)
    found = [usual]
    q, o = module.projections.get("q"), module.projections.get("o")
    if usual.layout == "latent (MLA)":
        found.append(_without_rotation(usual))
    if q and o and q.rows and o.columns and q.rows == 2 * o.columns and usual.layout == "separate":
        gated = tuple(
            replace(f, relation=Equation(((2, ("h", "d_k")),), q.rows)) if f.source == q.name else f
            for f in usual.facts
        )
        remark = f"{q.shown} holds a second map, such as a gate, beside the queries"
        found.append(Reading("separate, gated", gated, usual.background, remark))
    if _may_be_turned(module):
        turned = Module(
            module.path,
            {r: _turned(p) for r, p in module.projections.items()},
            module.hints,
            module.heads,
        )
        other = _reading(turned)
        remark = "the weights are stored as (in, out)"
        found.append(Reading(other.layout, other.facts, other.background, remark))
    if o is not None and o.rows:
        columns = {p.columns for r, p in module.projections.items() if r in {"q", "k", "v", "qkv"}}
        output = o.rows if len(columns) == 1 else None
        found += [replace(_loose(r, o), output=output) for r in found]
    return found


def _loose(reading: Reading, o: Projection) -> Reading:
    """Leave out that the output is as wide as the input: a map between may change the width."""
    rows = (product(o.rows or 0, "d_model"), product(o.columns or 0, "d_model"))
    facts = tuple(f for f in reading.facts if not (f.source == o.name and f.relation in rows))
    remark = f"{o.shown} gives another width than the one that the queries are made from"
    return replace(reading, facts=facts, remark=remark, loose=True)


def _without_rotation(reading: Reading) -> Reading:
    """Return low-rank attention whose heads hold no part for rotary embedding."""

    def less(fact: Fact) -> Fact:
        relation = fact.relation
        if not isinstance(relation, Equation):
            return fact
        terms = tuple(t for t in relation.terms if "rope" not in t[1])
        return replace(fact, relation=Equation(terms, relation.value))

    facts = tuple(less(f) for f in reading.facts)
    remark = "no width is left for qk_rope_head_dim: the heads carry no rotary part"
    return replace(reading, facts=facts, remark=remark)


def _may_be_turned(module: Module) -> bool:
    """Tell whether weights without a bias look stored as (in, out): only so do their inputs agree."""
    maps = [p for r, p in module.projections.items() if r in {"q", "k", "v", "qkv", "kv"}]
    if any(p.form != "plain" or p.turned or p.split or not p.rows or not p.columns for p in maps):
        return False
    if "qkv" in module.projections:
        joined = module.projections["qkv"]
        return joined.bias is None and (joined.rows or 0) < (joined.columns or 0)
    agree = len({p.rows for p in maps}) == 1
    return agree and len({p.columns for p in maps}) > 1 and all(p.bias is None for p in maps)


def _turned(p: Projection) -> Projection:
    return p if p.turned or p.form != "plain" else replace(p, rows=p.columns, columns=p.rows)


def _reading(module: Module) -> Reading:
    roles = module.projections
    background: tuple[Relation, ...] = (EVEN_GROUPS,)
    if "kv_b" in roles or "kv_a" in roles:
        layout, facts, background = "latent (MLA)", list(_latent(roles)), ()
    elif "qkv" in roles:
        layout, facts = "joined q k v", list(_joined(roles["qkv"]))
        background = (EVEN_GROUPS, SAME_WIDTH)
    else:
        layout, facts = "separate", list(_separate(module))
        if "v" not in roles and "kv" not in roles:
            background = (EVEN_GROUPS, SAME_WIDTH)
    if "o" in roles and roles["o"].columns:
        facts.append(_fact(roles["o"], product(roles["o"].columns, "h", "d_v")))
    facts += _width(module)
    facts += [f for p in roles.values() for f in _bias(p, facts)]
    for hint in module.hints:
        if hint.unknown == "norm" and layout != "latent (MLA)":
            facts.append(_hint(hint.shown, "d_k", hint.value, "shape"))
        elif hint.unknown in NAMES and layout != "latent (MLA)":
            facts.append(_hint(hint.shown, hint.unknown, hint.value, "likely"))
    return Reading(layout, tuple(facts), background)


def _fact(p: Projection, relation: Relation) -> Fact:
    return Fact(p.name, p.shown, relation)


def _hint(shown: str, unknown: str, value: int, kind: str) -> Fact:
    source = shown.split(" (")[0]
    fact = Fact(source, shown, product(value, unknown))
    return fact if kind == "shape" else replace(fact, kind="likely")


def _separate(module: Module) -> Iterator[Fact]:
    roles = module.projections
    products = {"q": ("h", "d_k"), "k": ("h_kv", "d_k"), "v": ("h_kv", "d_v")}
    for role, names in products.items():
        p = roles.get(role)
        if p is None:
            continue
        if p.rows is None:
            if p.numbers:
                yield _fact(p, product(p.numbers, "d_model", *names))
            continue
        if module.heads is not None:  # one module for each head
            yield _fact(p, product(p.rows, names[1]))
            continue
        yield _fact(p, product(p.rows, *names))
        if p.split is not None:
            yield _fact(p, product(p.split[0], names[0]))
    if module.heads is not None:
        shown = f"{module.heads} modules in {module.path.rsplit('.', 1)[-1]}"
        for unknown in ("h", "h_kv"):
            yield Fact(module.path, shown, product(module.heads, unknown))
    for role, names in (("kv", ("h_kv", "h_kv")), ("qk", ("h", "h_kv"))):
        second = "d_v" if role == "kv" else "d_k"
        p = roles.get(role)
        if p is None or p.rows is None:
            continue
        v = roles.get("v")
        if role == "qk" and v is not None and v.rows == p.rows:  # one projection for both
            yield _fact(p, product(p.rows, "h", "d_k"))
        else:
            yield _fact(p, Equation(((1, (names[0], "d_k")), (1, (names[1], second))), p.rows))
            if role == "kv":  # usual, but keys and values may be of different widths
                yield Fact(p.name, "head_dim = v_head_dim", SAME_WIDTH, "likely")


def _joined(p: Projection) -> Iterator[Fact]:
    if p.rows is not None:
        terms = ((1, ("h", "d_k")), (2, ("h_kv", "d_k")))  # v is as wide as k: SAME_WIDTH
        yield _fact(p, Equation(terms, p.rows))


def _latent(roles: dict[str, Projection]) -> Iterator[Fact]:
    q = roles.get("q_b") or roles.get("q")
    if q is not None and q.rows:
        yield _fact(q, Equation(((1, ("h", "nope")), (1, ("h", "rope"))), q.rows))
    for role, relation in (("q_a", ("q_rank",)), ("q_b", ("q_rank",))):
        p = roles.get(role)
        size = None if p is None else p.rows if role == "q_a" else p.columns
        if p is not None and size:
            yield _fact(p, product(size, *relation))
    down, up = roles.get("kv_a"), roles.get("kv_b")
    if down is not None and down.rows:
        yield _fact(down, Equation(((1, ("kv_rank",)), (1, ("rope",))), down.rows))
    if up is not None and up.columns:
        yield _fact(up, product(up.columns, "kv_rank"))
    if up is not None and up.rows:
        yield _fact(up, Equation(((1, ("h", "nope")), (1, ("h", "d_v"))), up.rows))


def _width(module: Module) -> list[Fact]:
    """Return what the inputs and the output say of d_model."""
    roles = module.projections
    made_of_x = [roles[r] for r in ("q", "q_a", "qkv", "qk") if r in roles]
    if "kv_a" in roles:
        made_of_x.append(roles["kv_a"])
    facts = [_fact(p, product(p.columns, "d_model")) for p in made_of_x if p.columns]
    out = roles.get("o")
    if out is not None and out.rows:
        facts.append(_fact(out, product(out.rows, "d_model")))
    return facts


def _bias(p: Projection, facts: list[Fact]) -> Iterator[Fact]:
    """Yield the fact that a bias of another width than its weight's rows states."""
    if p.bias is None or p.rows is None or p.bias == p.rows or p.turned or p.form != "plain":
        return
    for fact in facts:
        relation = fact.relation
        if fact.source == p.name and isinstance(relation, Equation) and relation.value == p.rows:
            name = p.name.replace("weight", "bias")
            yield Fact(name, f"{name} {shape_text((p.bias,))}", replace(relation, value=p.bias))
            return


def likely(section: Section | None, sizes: dict[str, int], layer: int | None) -> list[Fact]:
    """Return what is usual where the config is silent; used only as far as the shapes allow."""
    if section is None:
        return []
    facts: list[Fact] = []
    for unknown, each in section.lists.items():
        if layer is not None and layer < len(each) and unknown in {"h", "h_kv"}:
            says = f"{section.key(unknown)}[{layer}] = {each[layer]}"
            facts.append(Fact(section.key(unknown), says, product(each[layer], unknown), "likely"))
    values = section.values
    heads, width = values.get("h"), values.get("d_model") or sizes.get("d_model")
    if "d_k" not in values and heads and width and width % heads == 0:
        says = f"{NAMES['d_model']} / {NAMES['h']} = {width // heads}"
        facts.append(Fact("d_model / num_heads", says, product(width // heads, "d_k"), "likely"))
    if "h_kv" not in values and heads:
        facts.append(Fact("num_heads", f"num_heads = {heads}", product(heads, "h_kv"), "likely"))
    return facts
