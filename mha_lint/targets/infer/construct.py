"""Guess constructor arguments: by name, annotation, default, and what the body does with them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import ModuleType
from typing import Any

from torch import nn

from mha_lint.targets.infer.answers import answer, column, is_column, table
from mha_lint.targets.infer.bodies import constructor_evidence
from mha_lint.targets.infer.configs import (
    METHODS,
    TENSOR,
    TEXT,
    config_shape,
    field_names,
    is_config_class,
    render_config,
    small_entries,
)
from mha_lint.targets.infer.guarded import waking_flags
from mha_lint.targets.infer.handed import handed, local_modules, torch_layers
from mha_lint.targets.infer.scheme import SCHEMES, Scheme
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.infer.sized import flag, sized, sized_tuple
from mha_lint.targets.infer.uses import Evidence
from mha_lint.targets.infer.vocabulary import Role, role_of


@dataclasses.dataclass(slots=True)
class Guess:
    """What one argument might be: expressions, the likeliest first; ``role`` if it was told."""

    options: list[str]
    role: Role | None = None


class Constructor:
    """Guesses for the required arguments of `made`, a class or function of the user.

    ``name``: the expression for it. ``scope``: the names that expressions may use.
    """

    def __init__(self, made: Any, name: str, scope: dict[str, Any], depth: int = 0) -> None:
        """Read the constructor; `depth` counts the modules that are made to be handed over."""
        self.made, self.name, self.scope, self.depth = made, name, scope, depth
        self.evidence = dict(constructor_evidence(made))
        self.parameters = list(parameters_of(made))
        self._guessed: dict[Scheme, dict[str, Guess]] = {}

    def required(self) -> list[str]:
        """Return the names of the arguments without a default."""
        return [p.name for p in self.parameters if p.default is p.empty]

    def guesses(self, scheme: Scheme) -> dict[str, Guess]:
        """Return guesses for all required arguments."""
        if scheme not in self._guessed:
            self._guessed[scheme] = self._all_guesses(scheme)
        return self._guessed[scheme]

    def _all_guesses(self, scheme: Scheme) -> dict[str, Guess]:
        return {
            p.name: self.guess(p, scheme)
            for p in self.parameters
            if p.default is p.empty
            or (p.default is None and (self._is_config(p) or self._is_shared_count(p)))
        }

    def render(self, arguments: dict[str, str]) -> str:
        """Return the construction as an expression: ``MHA(24, 4, bias=True)``."""
        known = {p.name for p in self.parameters}
        parts = [
            arguments[p.name] if p.kind is p.POSITIONAL_ONLY else f"{p.name}={arguments[p.name]}"
            for p in self.parameters
            if p.name in arguments
        ]
        parts += [f"{name}={text}" for name, text in arguments.items() if name not in known]
        return f"{self.name}({', '.join(parts)})"

    def guess(self, parameter: inspect.Parameter, scheme: Scheme) -> Guess:
        """Return what `parameter` might be."""
        name = parameter.name
        evidence = self.evidence.get(name, Evidence())
        annotated = self._annotated(parameter)
        if self._is_config(parameter):
            return Guess(self._configs(name, evidence, annotated, scheme), Role.CONFIG)
        role = role_of(name)
        if evidence.choices and role not in (Role.WIDTH, Role.HEADS):
            return Guess([repr(choice) for choice in dict.fromkeys(evidence.choices)], role)
        called = evidence.calls and role not in _NUMBERS and Role.WIDTH not in evidence.roles
        if called or role is Role.NORM:
            return Guess(self._factories(name, role, evidence, scheme), role)
        is_module = isinstance(annotated, type) and issubclass(annotated, nn.Module)
        layer = bool(torch_layers(evidence, scheme))
        if is_module or layer or (evidence.used_as_module and role is not Role.ACTIVATION):
            return Guess(handed(self, name, annotated, evidence, scheme), Role.MODULE)
        if role is Role.ACTIVATION:
            ways = ["nn.GELU()" if evidence.used_as_module else "'gelu'", "F.gelu", "'GELU'"]
            return Guess(ways, role)
        if annotated is bool or (role is None and evidence.tested and not evidence.role()):
            on = flag(name) == "True" or name in waking_flags(self.made)
            return Guess([str(on), str(not on)], Role.FLAG)
        if annotated is float and role not in _FLOATS:
            return Guess(["0.5", "1.0"], role)
        if annotated is str:
            return Guess(["'gelu'", "''"], role)
        if role is None or (role is Role.WIDTH and evidence.role() is Role.HEADS):
            role = evidence.role() or role
        elif role is Role.HEAD_DIM and evidence.divided:
            role = Role.WIDTH  # dk // heads: the width of all heads together
        elif role in (Role.LENGTH, Role.COUNT, Role.INDEX, Role.SIDE) and evidence.roles:
            role = evidence.role() if evidence.role() in (Role.WIDTH, Role.RATE) else role
        if role in _HEADS and self._shares(name, evidence):
            role = Role.KV_HEADS
        if role is Role.KV_HEADS and parameter.default is None:
            return Guess([sized(name, role, scheme)[0], "None"], role)
        options = sized(name, role, scheme)
        if evidence.length > 1:
            options = [sized_tuple(name, role, evidence.length, scheme), *options]
        elif evidence.iterated and evidence.items > 1:
            item = f"({', '.join([options[0]] * evidence.items)})"
            options = [f"[{item}, {item}]", *options]
        elif evidence.iterated or (annotated is list and role in _NUMBERS):
            several = f"[{options[0]}, {options[0]}]"
            options.insert(1 if "int" in evidence.kinds else 0, several)
        elif role in (Role.SIDE, Role.WINDOW):
            options += [sized_tuple(name, role, 2, scheme)]
        elif evidence.optional and not evidence.roles and role in _UNSET and not evidence.tested:
            options.insert(0, "None")
        return Guess(list(dict.fromkeys(options)), role)

    def _shares(self, name: str, evidence: Evidence) -> bool:
        """Tell whether `name` counts heads that others share: it divides a count of heads.

        Or heads are split by it, and by another count, by which alone the width is divided.
        """
        if evidence.wholes:
            return any(
                ref != name
                and (role_of(ref.rpartition(".")[2]) is Role.HEADS or bool(self._of(ref).wholes))
                for ref in evidence.wholes
            )
        return (
            role_of(name) is not Role.HEADS
            and Role.HEADS in evidence.roles
            and any(e.wholes and Role.HEADS in e.roles for e in self.evidence.values())
        )

    def _is_shared_count(self, parameter: inspect.Parameter) -> bool:
        """Tell whether `parameter` counts key/value heads; None stands for as many as queries have."""
        evidence, role = self._of(parameter.name), role_of(parameter.name)
        return role is Role.KV_HEADS or (role in _HEADS and self._shares(parameter.name, evidence))

    def _of(self, ref: str) -> Evidence:
        return self.evidence.get(ref, Evidence())

    def _annotated(self, parameter: inspect.Parameter) -> Any:
        """Return the class that annotates `parameter`, Optional and text resolved, or None."""
        annotation = parameter.annotation
        if annotation is parameter.empty:
            return None
        if isinstance(annotation, str):
            text = annotation.replace("Optional[", "").rstrip("]").partition("|")[0].strip()
            annotation = getattr(__import__("builtins"), text, None) or self._lookup(text)
        arguments = getattr(annotation, "__args__", None)
        if arguments and not isinstance(annotation, type):
            annotation = arguments[0]
        return annotation if isinstance(annotation, type) and annotation is not Any else None

    def _lookup(self, text: str) -> Any:
        value: Any = None
        for index, part in enumerate(text.split(".")):
            value = self.scope.get(part) if not index else getattr(value, part, None)
        return value

    def _is_config(self, parameter: inspect.Parameter) -> bool:
        evidence = self.evidence.get(parameter.name)
        annotated = self._annotated(parameter)
        if annotated is not None and (
            dataclasses.is_dataclass(annotated) or is_config_class(annotated)
        ):
            return True
        entries = evidence.entries if evidence is not None else {}
        if evidence is not None and torch_layers(evidence, SCHEMES[0]):
            return False
        if annotated is dict or role_of(parameter.name) is Role.CONFIG:
            return True
        required = parameter.default is parameter.empty
        if (
            required
            and _CONFIG.search(parameter.name)
            and not (
                evidence is not None
                and (evidence.used_as_module or evidence.calls or evidence.roles)
            )
        ):
            return True
        own = {e for e, how in entries.items() if "item" in how or "get" in how}
        data = entries.keys() - METHODS - TENSOR
        asked = any("method" in entries[entry] for entry in data)
        if asked and evidence is not None and required:
            return not evidence.used_as_module
        return bool(own) or (len(data) >= 2 and required)

    def _configs(self, ref: str, evidence: Evidence, annotated: Any, scheme: Scheme) -> list[str]:
        """Return expressions for a config: its class at small sizes, then at its defaults, an
        instance at module level, a stand-in.
        """
        entries = evidence.entries
        name, made = self._config_class(annotated, set(entries))
        if made is not None:
            inner = Constructor(made, name, self.scope, self.depth + 1)
            needed = {
                p.name: self._entry(f"{ref}.{p.name}", p.name, inner, p, scheme)
                for p in inner.parameters
                if p.default is p.empty
            }
            small = small_entries(inner.parameters, scheme)
            ways = [inner.render({**small, **needed}), inner.render(needed)]
            wanted, known = set(entries) - METHODS, set(field_names(made))
            if wanted - known:  # set elsewhere, or by whoever makes it
                made_up = self.stand_in(ref, evidence, annotated, scheme)
                ways.insert(0 if not wanted & known else len(ways), made_up)
            return list(dict.fromkeys(ways))
        if annotated is None and (instance := self._instance(set(entries))) is not None:
            return [instance, self.stand_in(ref, evidence, annotated, scheme)]
        return [self.stand_in(ref, evidence, annotated, scheme)]

    def stand_in(self, ref: str, evidence: Evidence, annotated: Any, scheme: Scheme) -> str:
        """Return an object with the entries that are read of `ref`, or a dict of them."""
        entries = evidence.entries
        fields = {
            entry: self._answered(f"{ref}.{entry}", entry, how, scheme)
            for entry, how in entries.items()
            if entry not in METHODS and (how != {"get"} or role_of(entry) is Role.KV_HEADS)
        }
        return render_config(fields, config_shape(entries, annotated))

    def _answered(self, ref: str, entry: str, how: set[str], scheme: Scheme) -> str:
        if "method" in how and f"{ref}()" in self.evidence:
            return f"lambda *_, **__: {answer(self, f'{ref}()', entry, scheme)}"
        if self._of(ref).table and not self._of(ref).iterated:
            return table(self, ref, scheme)
        return self._field(ref, entry, scheme)

    def _entry(
        self,
        ref: str,
        name: str,
        inner: Constructor,
        parameter: inspect.Parameter,
        scheme: Scheme,
    ) -> str:
        if ref in self.evidence:
            inner.evidence.setdefault(name, self.evidence[ref])
        return inner.guess(parameter, scheme).options[0]

    def _field(self, ref: str, entry: str, scheme: Scheme) -> str:
        return self._field_options(ref, entry, scheme)[0]

    def _field_options(self, ref: str, entry: str, scheme: Scheme) -> list[str]:
        evidence = self.evidence.get(ref, Evidence())
        entries = {e for e in evidence.entries if e not in METHODS}
        if entries and entries <= TEXT:
            return [repr("-".join([str(scheme.width)] * 2)), repr(entry.lower())]
        if is_column(entries):
            return [column(scheme, self._of(f"{ref}.shape").length)]
        if entries and not torch_layers(evidence, scheme):
            return [self.stand_in(ref, evidence, None, scheme)]
        fake = inspect.Parameter(entry, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        outer, self.evidence = self.evidence, {**self.evidence, entry: evidence}
        try:
            guess = self.guess(fake, scheme)
            unset = evidence.optional and not evidence.roles and guess.role in (None, Role.SCALE)
            return ["None", *guess.options] if unset else guess.options
        finally:
            self.evidence = outer

    def field(self, name: str, scheme: Scheme) -> str:
        """Return a guess for a config entry that turned out to be missing."""
        return self.field_options(name, scheme)[0]

    def field_options(self, name: str, scheme: Scheme) -> list[str]:
        """Return what a config entry might be, the likeliest first."""
        ref = next((r for r in self.evidence if r.endswith(f".{name}")), name)
        return self._field_options(ref, name, scheme)

    def _config_class(self, annotated: Any, entries: set[str]) -> tuple[str, Any]:
        if annotated is not None and annotated not in (dict, object):
            names = [n for n, v in self.scope.items() if v is annotated]
            return (names[0], annotated) if names else ("", None)
        wanted = entries - METHODS
        best, covered = None, 0.5
        for name, value in self.scope.items():
            if isinstance(value, type) and is_config_class(value) and wanted:
                known = set(field_names(value))
                share = len(wanted & known) / len(wanted)
                if share > covered:
                    best, covered = name, share
        return (best, self.scope[best]) if best is not None else ("", None)

    def _instance(self, entries: set[str]) -> str | None:
        """Return the name of a config object or dict at module level that has all `entries`."""
        wanted = entries - METHODS
        for name, value in self.scope.items():
            if name.startswith("_") or not wanted or isinstance(value, ModuleType | type):
                continue
            if isinstance(value, nn.Module) or callable(value):
                continue
            if isinstance(value, dict):
                if wanted <= value.keys():
                    return name
            elif wanted <= set(getattr(value, "__dict__", {})):
                return name
        return None

    def _factories(
        self, name: str, role: Role | None, evidence: Evidence, scheme: Scheme
    ) -> list[str]:
        if role is Role.NORM or "norm" in name.lower():
            return ["nn.LayerNorm", "nn.Identity"]
        if role is Role.ACTIVATION or set(evidence.calls) == {0}:
            return ["nn.GELU", "F.gelu"]
        local = [n for n, _ in local_modules(self, name)]
        return [*local, "nn.Linear", "nn.Identity"]

    def first(self, scheme: Scheme) -> dict[str, str]:
        """Return the likeliest expression for each required argument."""
        return {name: guess.options[0] for name, guess in self.guesses(scheme).items()}


_CONFIG = re.compile(r"_(cfgs?|configs?|conf|hparams|opts?|args|settings)$")
"""Names of configs beside the one that needs no name of its own."""
_UNSET = frozenset({Role.SCALE, Role.FLAG, None})
_HEADS = frozenset({Role.HEADS, Role.GROUPS, None})
_NUMBERS = frozenset(
    {Role.WIDTH, Role.HEADS, Role.KV_HEADS, Role.HEAD_DIM, Role.LENGTH, Role.LAYERS, Role.INNER}
)
"""What is a number though a helper calls it where it can: ``default(value, other)``."""
_FLOATS = frozenset(
    {
        Role.RATE,
        Role.EPSILON,
        Role.BASE,
        Role.SCALE,
        Role.SPREAD,
        Role.RATIO,
        Role.WIDTH,
        Role.HEADS,
    }
)
