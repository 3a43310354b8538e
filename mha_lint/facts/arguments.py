"""Arguments called after a role that feed another one."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Kind
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site

ARGUMENTS = {
    "q": frozenset(["q", "query", "queries"]),
    "k": frozenset(["k", "key", "keys"]),
    "v": frozenset(["v", "value", "values"]),
}


def misfed_operands(bench: Bench, site: Site) -> tuple[tuple[str, str, str], ...]:
    """Return operands that read an argument called after another role, while their own exists."""
    inputs = {n.lower(): n for n in bench.recording.input_names}
    named = {
        role: next((inputs[w] for w in words if w in inputs), None)
        for role, words in ARGUMENTS.items()
    }
    found: list[tuple[str, str, str]] = []
    if None in named.values():
        return _torn_source(bench, site)  # V may be short for "visual"
    for role, own in named.items():
        operand: Operand | None = getattr(site, role)
        if own is None or operand is None or operand.source is None:
            continue
        read = bench.dependence.inputs_of(operand.source.node)
        others = [n for r, n in named.items() if r != role and n in read]
        if own not in read and others:
            found.append((role, others[0], own))
    return tuple(found) or _torn_source(bench, site)


def _torn_source(bench: Bench, site: Site) -> tuple[tuple[str, str, str], ...]:
    """Return ("v", ...) where keys come from the source and values from the states that ask."""
    operands_ = (site.q, site.k, site.v)
    if any(o is None or o.source is None or o.source.kind != "projection" for o in operands_):
        return ()
    q, k, v = (
        bench.dependence.inputs_of(o.source.node)
        for o in operands_
        if o is not None and o.source is not None
    )
    if site.kind is Kind.CROSS and v and k and not (v & k) and v <= q:
        return (("v", min(v), min(k)),)
    if (
        v
        and k
        and not (v & k)
        and q == k
        and reads_a_source(str(site.context.meta.get("module", "")))
    ):
        return (("k", min(k), min(v)),)
    return ()


def reads_a_source(module_path: str) -> bool:
    """Return whether a module is called after cross-attention: it should read another source."""
    last = module_path.lower().split(".")[-1]
    return any(
        word in last
        for word in ("cross", "enc_att", "encoder_att", "src_att", "memory_att", "xattn")
    )
