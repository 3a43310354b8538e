"""Keys and values in each other's place: told by what is done to them, or by their layers' names."""

from __future__ import annotations

import re

from mha_lint.facts.bench import Bench
from mha_lint.facts.gain import operand_gain
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site

_WORDS = {
    "q": frozenset(["q", "wq", "qs", "query", "queries", "qry"]),
    "k": frozenset(["k", "wk", "ks", "key", "keys"]),
    "v": frozenset(["v", "wv", "vs", "val", "value", "values"]),
}


def exchanged(bench: Bench, site: Site) -> str:
    """Return what shows that keys and values are exchanged, "" where nothing does."""
    return next((why for m in site.all if (why := _at(bench, m))), "")


def _at(bench: Bench, site: Site) -> str:
    operands = (site.q, site.k, site.v)
    if any(o is None or o.source is None or o.source.kind != "projection" for o in operands):
        return ""
    q, k, v = (o for o in operands if o is not None)
    done = treatment(bench, q)
    if done and treatment(bench, v) == done and not treatment(bench, k):
        return f"the values are {done} as the queries are, and the keys are not"
    names = [role_of_name(_name(o)) for o in (k, v)]
    if names == ["v", "k"]:
        return f"by their names, {_name(k)} makes values and {_name(v)} keys"
    return ""


def treatment(bench: Bench, operand: Operand) -> str:
    """Return what stands between projection and operand: "normalised", "rotated" or ""."""
    gain = operand_gain(bench, operand)
    if gain.normalised:
        return "normalised"
    source, traced = operand.source, operand.trace
    if source is None or traced is None or gain.value is None or not operand.features:
        return ""
    apart = all(traced.clean[a] for a in source.data_axes)
    mixed = any(not traced.clean[a] for a in source.channel_axes)
    return "rotated" if apart and mixed else ""


def _name(operand: Operand) -> str:
    source = operand.source
    parameters = source.parameters if source is not None else ()
    return parameters[0].removesuffix(".weight") if parameters else ""


def role_of_name(name: str) -> str:
    """Return "q", "k" or "v" where the last parts of a parameter's name say one of them alone.

    The layer's name counts where the parameter's own says nothing: "key.kernel".
    """
    parts = [part for part in name.split(".") if not part.isdigit()]
    for part in reversed(parts[-2:]):
        words = {w.lower() for w in re.split(r"[_\W\d]+|(?<=[a-z])(?=[A-Z])", part) if w}
        found = [role for role, known in _WORDS.items() if words & known]
        if found:
            return found[0] if len(found) == 1 else ""
    return ""
