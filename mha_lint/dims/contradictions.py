"""The fewest facts that cannot hold together, and a sentence with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

from mha_lint.dims.data import NAMES, Contradiction, Equation, Fact, Relation
from mha_lint.dims.shape_sentences import by_widths, listed
from mha_lint.dims.solve import forced, possible

_MOST = 5
_DOUBTED = ("h_kv", "d_v", "rope", "nope", "kv_rank", "q_rank", "d_k", "h", "d_model")
"""Of several stated sizes that may be wrong: those that are mistaken more often first."""
_COUNTED = {"h": "query heads", "h_kv": "key/value heads"}


def contradictions(
    facts: Sequence[Fact], background: Sequence[Relation], where: str
) -> list[Contradiction]:
    """Return one contradiction for each fact that must go before the rest can hold."""
    left = list(facts)
    found: list[Contradiction] = []
    while len(found) < _MOST and not _fits(left, background):
        core = _core(left, background)
        blamed = _blamed(core, left, background)
        message, involved = _sentence(core, blamed, left, background)
        found.append(Contradiction(message, _sources(involved), where))
        left = [f for f in left if f is not blamed]
    return found


def _fits(facts: Sequence[Fact], background: Sequence[Relation]) -> bool:
    return possible([f.relation for f in facts] + list(background))


def _core(facts: list[Fact], background: Sequence[Relation]) -> list[Fact]:
    """Return a smallest set of facts that cannot hold with the background."""
    for size in range(1, 5):
        for chosen in combinations(facts, size):
            if not _fits(chosen, background):
                return list(chosen)
    core = list(facts)
    for fact in facts:
        fewer = [f for f in core if f is not fact]
        if not _fits(fewer, background):
            core = fewer
    return core


def _blamed(core: list[Fact], facts: list[Fact], background: Sequence[Relation]) -> Fact:
    """Return the fact whose removal helps most: what a config states before what a shape is."""

    def rank(fact: Fact) -> tuple[bool, bool, int]:
        rest = [f for f in facts if f is not fact]
        stated = fact.relation.stated if isinstance(fact.relation, Equation) else None
        doubt = _DOUBTED.index(stated) if stated in _DOUBTED else len(_DOUBTED)
        return (not _fits(rest, background), fact.kind != "stated", doubt)

    return min(core, key=rank)


def _sources(core: list[Fact]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.source for f in core))


def _sentence(
    core: list[Fact], blamed: Fact, facts: list[Fact], background: Sequence[Relation]
) -> tuple[str, list[Fact]]:
    """Return the sentence and the facts that it names."""
    relation = blamed.relation
    if len(core) == 1 and isinstance(relation, Equation) and relation.value <= 0:
        return f"{blamed.says}: it must be positive", core
    rest = [f for f in facts if f is not blamed]
    if isinstance(relation, Equation) and relation.stated and blamed.kind == "stated":
        known = forced([f.relation for f in rest] + list(background))
        if relation.stated in known:
            return _against_the_rest(core, blamed, rest, known), core
    if all(f.kind == "shape" for f in core):
        special = by_widths(core, facts)
        if special is not None:
            return special
    return _arithmetic(core, background), core


def _against_the_rest(
    core: list[Fact], blamed: Fact, rest: list[Fact], known: dict[str, int]
) -> str:
    """Say what all other facts agree on, and that `blamed` states something else."""
    assert isinstance(blamed.relation, Equation)
    unknown = blamed.relation.stated
    assert unknown is not None
    shapes = [f for f in core if f.kind == "shape"]
    if unknown in _COUNTED and {"h", "h_kv", "d_k"} <= known.keys():  # what the reader compares
        shapes = [f for f in rest if _is_product(f, "h", "d_k") or _is_product(f, "h_kv", "d_k")]
    if not shapes:
        shapes = [f for f in rest if f.kind == "shape" and unknown in f.relation.unknowns]
    start = listed(list(dict.fromkeys(f.says for f in shapes)))
    means = _means(unknown, known)
    given = f"with head_dim {known['d_k']} " if unknown in _COUNTED and "d_k" in known else ""
    if unknown == "d_k" and "h" in known:
        given = f"with num_heads {known['h']} "
    return f"{start}: {given}that is {means}, {_says(blamed)}{_remainder(blamed, core)}"


def _is_product(fact: Fact, *names: str) -> bool:
    relation = fact.relation
    return isinstance(relation, Equation) and any(n == names for _, n in relation.terms)


def _remainder(blamed: Fact, core: list[Fact]) -> str:
    """Return ", and 4096 is no multiple of 30" where one width shows that alone."""
    shapes = [f.relation for f in core if f.kind == "shape"]
    if len(shapes) == len(core) - 1 == 1 and isinstance(blamed.relation, Equation):
        width, value = shapes[0], blamed.relation.value
        if isinstance(width, Equation) and not width.stated and value and width.value % value:
            return f", and {width.value} is no multiple of {value}"
    return ""


def _means(unknown: str, known: dict[str, int]) -> str:
    if unknown in _COUNTED and {"h", "h_kv"} <= known.keys():
        return f"{known['h']} query and {known['h_kv']} key/value heads"
    if unknown in _COUNTED:
        return f"{known[unknown]} {_COUNTED[unknown]}"
    return f"{NAMES[unknown]} {known[unknown]}"


def _says(fact: Fact) -> str:
    """Return "the config says num_key_value_heads = 32" for a stated fact."""
    if fact.kind == "stated":
        return f"the config says {fact.says.removeprefix('config ')}"
    return f"{fact.says} says otherwise"


def _arithmetic(core: list[Fact], background: Sequence[Relation]) -> str:
    """Show the one relation that fails once the others are put in."""
    said = listed([f.says for f in core])
    for fact in sorted(core, key=lambda f: -len(f.relation.unknowns)):
        equation = fact.relation
        if not isinstance(equation, Equation):
            continue
        others = [f.relation for f in core if f is not fact] + list(background)
        known = forced(others)
        numbers = {n: known[n] for n in equation.unknowns if n in known}
        missing = [n for n in equation.unknowns if n not in numbers]
        needs = f"{fact.source} holds {equation.text()} = {equation.value}"
        if not missing:
            total = sum(c * prod(numbers[n] for n in names) for c, names in equation.terms)
            if equation.stated:
                name = NAMES[equation.stated]
                return (
                    f"{said}: the first say {name} {total}, the last {name} {equation.value}"
                    if (len(core) > 2)
                    else f"{said} disagree on {name}: {total} and {equation.value}"
                )
            return f"{said}: {needs}, but {equation.text(numbers)} is {total}"
        if len(missing) == 1 and len(equation.terms) == 1 and len(numbers) == 1:
            (value,) = numbers.values()
            return (
                (
                    f"{said}: {needs}, and {equation.value} is no multiple of {value} "
                    f"(remainder {equation.value % value})"
                )
                if equation.value % value
                else _shared(said, core)
            )
    return _shared(said, core)


def _shared(said: str, core: list[Fact]) -> str:
    width, stated = core[0].relation, core[-1].relation
    if (
        len(core) == 2
        and isinstance(width, Equation)
        and isinstance(stated, Equation)
        and stated.stated == "h_kv"
        and stated.value > 0
        and _is_product(core[0], "h", "d_k")
        and width.value % stated.value
    ):
        return (
            f"{said}: the query heads are a multiple of the key/value heads, and {width.value} is no "
            f"multiple of {stated.value} (remainder {width.value % stated.value})"
        )
    formulas = [
        f"{f.relation.text()} = {f.relation.value}"
        for f in core
        if isinstance(f.relation, Equation)
    ]
    return f"{said} cannot hold together: no whole numbers give {listed(formulas)}"
