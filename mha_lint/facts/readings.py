"""Names for a measured scale: the quantities that people divide scores by."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mha_lint.model.facts import Dims

NEAR = 1e-5
"""Relative: the constant may have been rounded to float32 once or twice."""


def readings(dims: Dims, terms: int = 1) -> dict[str, float]:
    """Return each name with its value at these sizes, the right ones first."""
    d, model, h = dims.head_dim, dims.d_model, dims.num_heads
    found = {"1/sqrt(head_dim)": d**-0.5}
    for n in range(2, terms + 1):
        found[f"1/sqrt({n}*head_dim)"] = (n * d) ** -0.5
    found |= {
        "1": 1.0,
        "1/sqrt(d_model)": model**-0.5,
        "1/sqrt(num_heads*head_dim)": (h * d) ** -0.5,
        "1/head_dim": 1 / d,
        "1/d_model": 1 / model,
        "sqrt(head_dim)": d**0.5,
        "head_dim": float(d),
        "sqrt(d_model)": model**0.5,
        "1/sqrt(num_heads)": h**-0.5,
        "1/num_heads": 1 / h,
        "sqrt(num_heads)": h**0.5,
        "1/sqrt(T_k)": dims.t_k**-0.5,
        "1/T_k": 1 / dims.t_k,
        "1/sqrt(T_q)": dims.t_q**-0.5,
        "1/T_q": 1 / dims.t_q,
        "1/sqrt(v_dim)": dims.v_dim**-0.5,
        "1/sqrt(head_dim * num_heads)/sqrt(head_dim)": (d * d * h) ** -0.5,
        "head_dim**-0.25": d**-0.25,
        "head_dim**-0.75": d**-0.75,
        "d_model**-0.25": model**-0.25,
        "1/(head_dim*sqrt(head_dim))": d**-1.5,
        "1/head_dim**2": d**-2.0,
        "1/sqrt(2*head_dim)": (2 * d) ** -0.5,
        "1/sqrt(2*head_dim)/sqrt(head_dim)": 2**-0.5 / d,
        "1/sqrt(batch)": max(1, dims.batch) ** -0.5,
    }
    return found


def matching(value: float, dims: Dims, terms: int = 1, near: float = NEAR) -> list[str]:
    """Return the names whose value at these sizes is `value`, the right ones first.

    ``near``: how far off, relatively, a constant may be by rounding.
    """
    found = [
        name
        for name, known in readings(dims, terms).items()
        if math.isclose(abs(value), known, rel_tol=near)
    ]
    if dims.num_heads * dims.head_dim == dims.d_model and "1/sqrt(d_model)" in found:
        found.remove("1/sqrt(num_heads*head_dim)")
    if dims.v_dim == dims.head_dim and "1/sqrt(head_dim)" in found:
        found.remove("1/sqrt(v_dim)")
    return found


def by_construction(value: float, sizes: Mapping[str, object]) -> dict[str, int]:
    """Return the powers of integers of the construction, and of their quotients, that are `value`.

    Each name comes with how many integers it takes.
    """
    whole = {n: v for n, v in sizes.items() if type(v) is int and v > 1}
    bases = {n: (float(v), 1) for n, v in whole.items()}
    for one, high in whole.items():
        for two, low in whole.items():
            if one != two and high % low == 0 and high > low:
                bases[f"{one}/{two}"] = high / low, 2
    found: dict[str, int] = {}
    for name, (base, parts) in bases.items():
        for text, power in (("1/sqrt({})", -0.5), ("1/({})", -1.0), ("sqrt({})", 0.5), ("{}", 1.0)):
            if math.isclose(abs(value), base**power, rel_tol=NEAR):
                plain = text == "1/({})" and parts == 1
                found[f"1/{name}" if plain else text.format(name)] = parts
    return found


def is_right(name: str, terms: int = 1) -> bool:
    """Return whether a name is the definition's scale, or that of a sum of up to `terms` products."""
    return name in {"1/sqrt(head_dim)", *(f"1/sqrt({n}*head_dim)" for n in range(2, terms + 1))}


_SCALES = ("scale", "scalar", "temp", "mult", "tau", "beta", "gamma")
_RATES = ("drop", "prob", "rate", "eps", "ratio", "std", "momentum", "decay", "slope", "percent")


def stated_as(value: float, stated: Mapping[str, object]) -> str | None:
    """Return the name of an argument or config entry that sets `value`, if there is one.

    Integers count only under the name of a scale, since sizes make scales by fault as well; a
    fraction counts unless its name says that it is another kind of rate.
    """
    for name, given in stated.items():
        if isinstance(given, bool) or not isinstance(given, (int, float)) or given in (0, 1):
            continue
        words = name.lower().replace("multiple", "")
        called_so = any(w in words for w in _SCALES)
        if not called_so and (float(given).is_integer() or any(w in words for w in _RATES)):
            continue
        for text, made in ((name, given), (f"1/{name}", 1 / given)):
            if math.isclose(abs(value), abs(made), rel_tol=NEAR):
                return text
        if given > 0:
            for text, made in ((f"1/sqrt({name})", given**-0.5), (f"sqrt({name})", given**0.5)):
                if math.isclose(abs(value), made, rel_tol=NEAR):
                    return text
    return None
