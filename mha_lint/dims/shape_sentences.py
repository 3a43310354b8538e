"""Sentences for shapes that contradict each other whatever the number of heads is."""

from __future__ import annotations

from collections.abc import Sequence

from mha_lint.dims.data import Equation, Fact

_QUERY, _KEY, _VALUE, _OUT = ("h", "d_k"), ("h_kv", "d_k"), ("h_kv", "d_v"), ("h", "d_v")


def by_widths(core: Sequence[Fact], facts: Sequence[Fact]) -> tuple[str, list[Fact]] | None:
    """Return a sentence and the facts it names, or None where no known comparison shows the fault."""
    return _one_width_twice(core) or _joined(core) or _shared(core) or _ratios(facts)


def _one_width_twice(core: Sequence[Fact]) -> tuple[str, list[Fact]] | None:
    if len(core) != 2:
        return None
    first, second = core
    a, b = first.relation, second.relation
    if isinstance(a, Equation) and isinstance(b, Equation) and a.terms == b.terms:
        text = f"{first.says} and {second.says} disagree on {a.text()}: {a.value} and {b.value}"
        return text, [first, second]
    return None


def _joined(core: Sequence[Fact]) -> tuple[str, list[Fact]] | None:
    """Joined q, k and v beside an output projection that tells how much the queries take."""
    joined = next((f for f in core if _is_joined(f)), None)
    out = next((f for f in core if _terms(f) == {_OUT}), None)
    if joined is None or out is None or len(core) != 2:
        return None
    rows, queries = _value(joined), _value(out)
    left = rows - queries
    text = f"{joined.says} and {out.says}: {queries} of {rows} rows are queries"
    if left <= 0:
        return f"{text}, so none are left for keys and values", [joined, out]
    text += f", the other {left} are keys and values"
    if left % 2:
        return f"{text}, and {left} cannot be halved", [joined, out]
    half = left // 2
    remainder = f"{queries} is no multiple of {half} (remainder {queries % half})"
    return f"{text}, {half} each, and {remainder}", [joined, out]


def _is_joined(fact: Fact) -> bool:
    relation = fact.relation
    return isinstance(relation, Equation) and relation.terms == ((1, _QUERY), (2, _KEY))


def _shared(core: Sequence[Fact]) -> tuple[str, list[Fact]] | None:
    """Return the sentence for query heads that no number of key/value heads can serve evenly."""
    for wide, narrow in ((_QUERY, _KEY), (_OUT, _VALUE)):
        first = next((f for f in core if _terms(f) == {wide}), None)
        second = next((f for f in core if _terms(f) == {narrow}), None)
        if first is None or second is None or len(core) != 2:
            continue
        a, b = _value(first), _value(second)
        if a % b:
            text = (
                f"{first.says} and {second.says}: {a} is no multiple of {b} (remainder {a % b}), so no "
                "number of key/value heads can serve the query heads evenly"
            )
            return text, [first, second]
    return None


def _ratios(facts: Sequence[Fact]) -> tuple[str, list[Fact]] | None:
    """Return the sentence for q and k that are grouped otherwise than v and the output."""
    found = [
        next((f for f in facts if _terms(f) == {t} and f.kind == "shape"), None)
        for t in (_QUERY, _KEY, _VALUE, _OUT)
    ]
    q, k, v, o = found
    if q is None or k is None or v is None or o is None:
        return None
    if _value(q) % _value(k) or _value(o) % _value(v):
        return None
    first, second = _value(q) // _value(k), _value(o) // _value(v)
    if first == second:
        return None
    text = (
        f"{q.says} and {k.says} give {first} query heads for each key/value head, {v.says} and {o.says} "
        f"give {second}"
    )
    return text, [q, k, v, o]


def _terms(fact: Fact) -> set[tuple[str, ...]]:
    relation = fact.relation
    if not isinstance(relation, Equation) or any(c != 1 for c, _ in relation.terms):
        return set()
    return {names for _, names in relation.terms}


def _value(fact: Fact) -> int:
    assert isinstance(fact.relation, Equation)
    return fact.relation.value


def listed(items: Sequence[str]) -> str:
    """Return "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
