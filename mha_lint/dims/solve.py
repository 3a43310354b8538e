"""A small search over whole numbers: which head sizes satisfy all relations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import isqrt, prod

from mha_lint.dims.data import LARGEST, Divides, Equation, Relation

_ORDER = ("d_model", "kv_rank", "q_rank", "h", "d_k", "rope", "nope", "d_v", "h_kv")
_MOST_STEPS = 5_000


class _TooLong(Exception):
    """The search was given up."""


def solutions(relations: Iterable[Relation], limit: int = 200) -> list[dict[str, int]]:
    """Return up to `limit` assignments of positive whole numbers to the unknowns that occur."""
    return _found(relations, limit)[0]


def possible(relations: Iterable[Relation]) -> bool:
    """Tell whether all `relations` can hold at once; what is not settled in time counts as yes."""
    found, settled = _found(relations, 1)
    return bool(found) or not settled


def forced(relations: Iterable[Relation]) -> dict[str, int]:
    """Return the unknowns that have one value in every solution; {} where there is none."""
    given = tuple(relations)
    found, settled = _found(given, 200)
    if not settled or len(found) >= 200:
        return _propagate(_useful(given), {}) or {}
    if not found:
        return {}
    first, *rest = found
    return {n: v for n, v in first.items() if all(other[n] == v for other in rest)}


def _found(relations: Iterable[Relation], limit: int) -> tuple[list[dict[str, int]], bool]:
    """Return up to `limit` solutions, and whether the search came to its own end."""
    found: list[dict[str, int]] = []
    try:
        for solution in _search(_useful(tuple(dict.fromkeys(relations))), {}, [_MOST_STEPS]):
            found.append(solution)
            if len(found) >= limit:
                break
    except _TooLong:
        return found, False
    return found, True


def _useful(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """Drop what can always be satisfied: a divisor or multiple that nothing else speaks of."""
    spoken = {n for r in relations if isinstance(r, Equation) for n in r.unknowns}
    return tuple(r for r in relations if isinstance(r, Equation) or spoken.issuperset(r.unknowns))


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a positive number in order."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def _search(
    relations: tuple[Relation, ...], bound: dict[str, int], steps: list[int]
) -> Iterator[dict[str, int]]:
    steps[0] -= 1
    if steps[0] < 0:
        raise _TooLong
    settled = _propagate(relations, bound)
    if settled is None:
        return
    open_names = {n for relation in relations for n in relation.unknowns} - settled.keys()
    if not open_names:
        yield settled
        return
    name, values = _branch(relations, settled, open_names)
    for value in values:
        yield from _search(relations, {**settled, name: value}, steps)


def _branch(
    relations: tuple[Relation, ...], known: dict[str, int], open_names: set[str]
) -> tuple[str, Sequence[int]]:
    """Return the unknown to try next and its values: one that divides a known number, if any."""
    multiples = {r.multiple: r.divisor for r in relations if isinstance(r, Divides)}
    best: tuple[int, int, str, Sequence[int]] | None = None
    for relation in relations:
        if not isinstance(relation, Equation) or not 0 < relation.value < LARGEST:
            continue
        direct = _factors(relation, {})
        for name in _factors(relation, multiples) & open_names:
            # A number that `name` divides itself holds that factor already.
            others = [n for n in direct if n in known and multiples.get(n) != name]
            values = divisors(relation.value // prod(known[n] for n in others))
            rank = (len(values), _ORDER.index(name), name, values)
            if best is None or rank < best:
                best = rank
    if best is not None:
        return best[2], best[3]
    name = min(open_names, key=lambda n: (_bound(relations, n), _ORDER.index(n)))
    return name, range(1, _bound(relations, name) + 1)


def _bound(relations: tuple[Relation, ...], name: str) -> int:
    """Return the largest value that `name` can have: terms are positive and add up."""
    values = [
        r.value
        for r in relations
        if isinstance(r, Equation) and name in r.unknowns and all(c > 0 for c, _ in r.terms)
    ]
    return min(values, default=LARGEST)


def _factors(equation: Equation, multiples: dict[str, str]) -> set[str]:
    """Return the unknowns that divide every term, and so the value."""
    terms = [
        {*names, *(multiples[n] for n in names if n in multiples)} for _, names in equation.terms
    ]
    return set.intersection(*terms) if terms else set()


def _propagate(relations: tuple[Relation, ...], bound: dict[str, int]) -> dict[str, int] | None:
    """Bind every unknown that follows; None where a relation fails."""
    values = dict(bound)
    changed = True
    while changed:
        changed = False
        for relation in relations:
            if not isinstance(relation, Equation):
                if not _divides(relation, values):
                    return None
                continue
            missing = [n for n in relation.unknowns if n not in values]
            if len(missing) > 1:
                if _exceeds(relation, values):
                    return None
                continue
            if missing:
                value = solve_for(relation, missing[0], values)
                if value is None:
                    return None
                values[missing[0]] = value
                changed = True
            elif left_side(relation, values) != relation.value:
                return None
    return values


def _divides(relation: Divides, values: dict[str, int]) -> bool:
    if relation.divisor in values and relation.multiple in values:
        return values[relation.multiple] % values[relation.divisor] == 0
    return True


def _exceeds(equation: Equation, values: dict[str, int]) -> bool:
    """Tell whether the known factors alone rule the equation out: too large, or no divisor."""
    if any(coefficient < 0 for coefficient, _ in equation.terms):
        return False
    least = sum(c * prod(values.get(n, 1) for n in names) for c, names in equation.terms)
    if least > equation.value:
        return True
    common = prod(values[n] for n in _factors(equation, {}) if n in values)
    return equation.value % common != 0


def left_side(equation: Equation, values: dict[str, int]) -> int:
    """Return the left side with all its unknowns in `values`."""
    return sum(c * prod(values[n] for n in names) for c, names in equation.terms)


def solve_for(equation: Equation, name: str, values: dict[str, int]) -> int | None:
    """Return the one positive whole number for `name`, the other unknowns being in `values`."""
    factor = rest = 0
    for coefficient, names in equation.terms:
        others = coefficient * prod(values[n] for n in names if n != name)
        if name in names:
            factor += others
        else:
            rest += others
    if factor == 0:
        return None
    quotient, remainder = divmod(equation.value - rest, factor)
    return quotient if remainder == 0 and quotient > 0 else None
