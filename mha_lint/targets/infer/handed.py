"""Modules that are handed to a constructor: those of the user, or the layer that the name says."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from typing import TYPE_CHECKING, Any

from torch import nn

from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.uses import Evidence
from mha_lint.targets.infer.vocabulary import Role, role_of

if TYPE_CHECKING:
    from mha_lint.targets.infer.construct import Constructor

DEEPEST = 3
"""Modules that are made to be handed to modules that are handed to the target."""


def handed(
    constructor: Constructor, name: str, annotated: Any, evidence: Evidence, scheme: Scheme
) -> list[str]:
    """Return expressions for a module that is handed to `constructor` as `name`, likely ones first."""
    options = torch_layers(evidence, scheme)
    if constructor.depth < DEEPEST:
        for local, made in local_modules(constructor, name, annotated, evidence):
            inner = type(constructor)(made, local, constructor.scope, constructor.depth + 1)
            options.append(inner.render(inner.first(scheme)))
    width = scheme.width
    lower = name.lower()
    if "norm" in lower:
        options.insert(0, f"nn.LayerNorm({width})")
    elif re.search("embed|emb$", lower):
        options.insert(0, f"nn.Embedding({scheme.vocabulary}, {width})")
    elif re.search("drop", lower):
        options.insert(0, "nn.Dropout(0.1)")
    elif _PROJECTION.search(lower):
        shared = any(role_of(p.name) is Role.KV_HEADS for p in constructor.parameters)
        narrow = shared and lower.startswith(("k", "v"))
        out = scheme.kv_heads * scheme.head_dim if narrow else width
        options.insert(0, f"nn.Linear({width}, {out})")
    elif re.search("^(ff|ffn|mlp|proj|linear|fc|fn)", lower):
        options.append(f"nn.Linear({width}, {width})")
    elif re.search("att", lower):
        options.append(f"nn.MultiheadAttention({width}, {scheme.heads}, batch_first=True)")
    none = ["None"] if evidence.optional and "att" not in lower else []
    return [*options, "nn.Identity()", *none]


def torch_layers(evidence: Evidence, scheme: Scheme) -> list[str]:
    """Return expressions for the layers of torch that a constructor tests for, or reads as such.

    ``base.in_features`` and ``base(x)``, or ``base.weight.dtype``, are those of a linear map.
    """
    width = scheme.width
    ways = {
        "Linear": f"nn.Linear({width}, {width})",
        "Embedding": f"nn.Embedding({scheme.vocabulary}, {width})",
        "Conv1d": f"nn.Conv1d({width}, {width}, 1)",
        "Conv2d": f"nn.Conv2d({width}, {width}, 1)",
    }
    read = evidence.entries.keys()
    if not read or not (evidence.used_as_module or "weight" in read):
        return [ways[kind] for kind in evidence.kinds if kind in ways]
    fitting = [kind for kind in ways if read <= _attributes(kind)]
    return [ways[kind] for kind in dict.fromkeys([*evidence.kinds, *fitting]) if kind in fitting]


@functools.cache
def _attributes(kind: str) -> frozenset[str]:
    """Return what can be read of torch's layer called `kind`."""
    made = getattr(nn, kind)
    layer = made(*[1] * (3 if kind.startswith("Conv") else 2))
    return frozenset(dir(layer))


def local_modules(
    constructor: Constructor, name: str, annotated: Any = None, evidence: Evidence | None = None
) -> list[tuple[str, Any]]:
    """Return the user's module classes, the one most like `name` first.

    They can be called as `evidence` tells, and are of the class `annotated`.
    """
    taken = evidence.taken if evidence is not None else set()
    found = [
        (local, value)
        for local, value in constructor.scope.items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value is not constructor.made
        and not value.__module__.startswith("torch.")
        and issubclass(value, annotated or nn.Module)
        and (not taken or any(_takes(value, *ways) for ways in taken))
    ]
    plain = name.lower().replace("_", "")

    def likeness(item: tuple[str, Any]) -> float:
        other = item[0].lower()
        shared = sum(part in other for part in name.lower().split("_") if len(part) > 2)
        return shared + difflib.SequenceMatcher(None, plain, other).ratio()

    return sorted(found, key=likeness, reverse=True)[:3]


def _takes(made: Any, count: int, names: tuple[str, ...]) -> bool:
    """Tell whether modules of the class `made` can be called with `count` arguments and `names`."""
    if made.forward is nn.Module.forward:
        return False
    try:
        inspect.signature(made.forward).bind(*range(count + 1), **dict.fromkeys(names))
    except (TypeError, ValueError):
        return False
    return True


_PROJECTION = re.compile(r"_(proj|projection|linear|fc|dense)$|^(proj|linear|fc)$")
