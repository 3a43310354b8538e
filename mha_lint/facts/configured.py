"""Numbers that are stated: in the configurations that modules hold, and in the call."""

from __future__ import annotations

import ast
import functools

from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import ClassSource, class_sources
from mha_lint.sites.site import Site
from mha_lint.targets.sizes import stated_of
from mha_lint.targets.subject import Subject


def configured(bench: Bench, site: Site) -> dict[str, float | bool]:
    """Return what the configurations of the modules around `site` state, by name.

    A factory hides what it passes to a constructor; the module keeps the object. Only entries that
    the code of the module reads count: no other one can have made anything in it.
    """
    root = bench.recording.module
    if not isinstance(root, nn.Module):
        return {}
    path = str(site.context.meta.get("module", ""))
    parts = path.split(".") if path else []
    around = {".".join(parts[:count]) for count in range(len(parts) + 1)}
    found: dict[str, float | bool] = {}
    modules = bench.recording.modules
    for module in (modules[name] for name in sorted(around, key=len) if name in modules):
        read = names_read(type(module))
        held = {
            n: v for n, v in vars(module).items()
            if not n.startswith("_") and not isinstance(v, int | float | Tensor | nn.Module)
        }  # fmt: skip
        found |= {n: v for n, v in stated_of(held).items() if n in read}
    return found


def passed_numbers(subject: Subject) -> dict[str, float | bool]:
    """Return the numbers of the call, by argument, where the user wrote it: a guess states nothing."""
    if not subject.real and subject.spec.call is None:
        return {}
    given = dict(zip(subject.argument_names, subject.args, strict=False)) | subject.kwargs
    return {n: v for n, v in given.items() if isinstance(v, int | float)}


def names_read_around(bench: Bench) -> frozenset[str]:
    """Return the names of attributes and keys that the code of the modules around the sites reads."""
    root = bench.recording.module
    if not isinstance(root, nn.Module):
        return frozenset()
    around: set[str] = {""}
    for site in bench.sites:
        parts = str(site.context.meta.get("module", "")).split(".")
        around |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    classes = {type(m) for name, m in root.named_modules() if name in around}
    return frozenset().union(*(names_read(cls) for cls in classes))


def names_read(cls: type) -> frozenset[str]:
    """Return the names of attributes and keys that the code of `cls` reads."""
    return frozenset().union(*(_names_in(source) for source in class_sources(cls)))


@functools.lru_cache(maxsize=1024)
def _names_in(source: ClassSource) -> frozenset[str]:
    nodes = list(ast.walk(source.node))
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    return frozenset(attributes | {
        n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)
    })  # fmt: skip
