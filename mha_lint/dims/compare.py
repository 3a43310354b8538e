"""One checkpoint: solve each group of layers, and compare it with the sections of a config."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mha_lint.dims.attention import Family, Module, find_modules, fold, place
from mha_lint.dims.config import Section
from mha_lint.dims.contradictions import contradictions
from mha_lint.dims.data import Candidate, Checkpoint, DimsReport, Equation, Fact, Group
from mha_lint.dims.facts import Reading, likely, readings
from mha_lint.dims.solve import forced, possible, solutions

USUAL_WIDTHS = (64, 80, 96, 128, 256)
_NARROWEST, _WIDEST = 8, 512
_SHOWN = ("d_model", "h", "h_kv", "d_k", "d_v", "nope", "rope", "q_rank", "kv_rank")
_SETTLES = (
    "shapes alone leave a head count open: a config with num_attention_heads or head_dim would settle "
    "it, or a q_norm or k_norm weight as wide as one head"
)

_KINDS = (("text", "language", "llm"), ("vision", "visual", "image"), ("audio", "speech"))
_ANY_KIND = frozenset(word for kind in _KINDS for word in kind)
"""Words for the same part of a model."""


@dataclass
class Comparison:
    """One checkpoint against the sections of all configs that were given."""

    checkpoint: Checkpoint
    sections: list[Section]
    report: DimsReport

    def run(self) -> None:
        """Add all groups, contradictions and notes to the report."""
        families = fold(find_modules(self.checkpoint))
        if not families:
            self.report.notes.append(
                f"{self.checkpoint.label}: none of {len(self.checkpoint.tensors)} tensors is a q, k, v "
                "or joined projection by name and shape"
            )
        largest = max((len(k) for f in families for k in f.kinds), default=0)
        for family in families:
            described = [k for k in family.kinds if self._described(k[0])]
            for kind in family.kinds:
                # Several layers that are all different from those the config describes are meant so.
                roles = {frozenset(k[0].projections) for k in described}
                meant = bool(described) and (
                    len(kind) > 1 or frozenset(kind[0].projections) not in roles
                )
                self._kind(kind, main=len(kind) == largest and not meant, meant=meant)
            self._differing(family)

    def _described(self, module: Module) -> bool:
        """Tell whether a section of the config fits."""
        if module.recurrent:
            return False
        return _choice(readings(module), self._order(module)) is not None

    def _kind(self, kind: list[Module], *, main: bool, meant: bool) -> None:
        module = kind[0]
        where = place(kind)
        group = Group(where, len(kind), "")
        group.tensors = tuple(p.shown for p in module.projections.values())
        self.report.groups.append(group)
        if module.recurrent:
            group.layout = "recurrent"
            self.report.notes.append(
                f"{where}: has the tensors of a recurrence beside q, k and v; not softmax attention, "
                "not read"
            )
            return
        self._packing(where, module)
        self.report.notes += [
            f"{where}: {misfit} is a projection by its name, by its shape it is none"
            for misfit in module.misfits
        ]
        options = readings(module)
        fitting = [r for r in options if _fits(r)]
        reading = fitting[0] if fitting else options[0]
        group.layout = reading.layout
        if not fitting:
            hard = [f for f in reading.facts if f.kind != "likely"]
            self.report.contradictions += contradictions(hard, reading.background, where)
            group.status = "contradictory"
            return
        self._solve(group, module, options, main=main, meant=meant)

    def _solve(
        self, group: Group, module: Module, options: list[Reading], *, main: bool, meant: bool
    ) -> None:
        fitting = [r for r in options if _fits(r)]
        order = self._order(module)
        choice = _choice(fitting, order)
        reading, section = choice if choice is not None else (fitting[0], None)
        if choice is None and order:
            nearest = None if meant else self._belongs(module, reading, order, main=main)
            if nearest is not None:
                strict = options[0] if reading.loose else reading
                facts = [f for f in strict.facts if f.kind != "likely"]
                facts += nearest.facts(_is_latent(strict))
                found = contradictions(facts, strict.background, group.where)
                self.report.contradictions += found
                group.status, group.config = "contradictory", nearest.name
            else:
                self.report.notes.append(f"{group.where}: no section of the config describes it")
        if section is not None:
            group.config = section.name
        if reading.remark:
            self.report.notes.append(f"{group.where}: {reading.remark}")
        group.layout = reading.layout
        self._sizes(group, module, reading, section)

    def _sizes(
        self, group: Group, module: Module, reading: Reading, section: Section | None
    ) -> None:
        facts = [f for f in reading.facts if f.kind != "likely"]
        if section is not None:
            facts += section.facts(_is_latent(reading))
        relations = [*(f.relation for f in facts), *reading.background]
        sizes = forced(relations)
        numbers = [int(p) for p in module.path.split(".") if p.isdecimal() and len(p) < 10]
        extra = [f for f in reading.facts if f.kind == "likely"]
        extra += likely(section, sizes, numbers[0] if numbers else None)
        for fact in extra:
            if possible([*relations, fact.relation]):
                relations.append(fact.relation)
        found = solutions(relations)
        sizes = forced(relations)
        if _is_latent(reading):
            complete_latent(sizes)
        group.sizes = {n: sizes[n] for n in _SHOWN if n in sizes}
        keys = module.projections.get("k") or module.projections.get("kv")
        if keys is not None and keys.columns and keys.columns != sizes.get("d_model"):
            group.kv_width = keys.columns if keys.form == "plain" else None
        if group.status == "contradictory":
            return
        if {"h", "d_k"} <= sizes.keys():
            group.status = "solved"
            self._silent(group, section, sizes)
        elif any(f.kind == "shape" and "h" in f.relation.unknowns for f in reading.facts):
            group.status = "open"
            if "d_model" in sizes or all(p.rows for p in module.projections.values()):
                group.candidates = _candidates(found, module)
            self.report.notes.append(_SETTLES)
        elif sizes.keys() & {"d_k", "d_v", "h_kv"}:
            group.status = "open"

    def _silent(self, group: Group, section: Section | None, sizes: dict[str, int]) -> None:
        """Say where a config leaves out a size that is not what one would take for granted."""
        if (
            section is None
            or "d_k" in section.values
            or section.latent
            or "h" not in section.values
        ):
            return
        width, heads = section.values.get("d_model"), section.values["h"]
        if width and width != heads * sizes["d_k"]:
            self.report.notes.append(
                f"{group.where}: the shapes give head_dim {sizes['d_k']}, but the config states none, and "
                f"{section.keys['d_model']} / {section.keys['h']} = {width} / {heads} is "
                f"{width / heads:g}: right only if the model's class has {sizes['d_k']} by default"
            )

    def _order(self, module: Module) -> list[Section]:
        """Return the sections that may describe a module: by name, by width, or as the only one."""
        numbers = [int(p) for p in module.path.split(".") if p.isdecimal() and len(p) < 10]
        columns = {
            p.columns for r, p in module.projections.items() if r in {"q", "q_a", "qkv", "qk"}
        }
        columns |= {p.rows for r, p in module.projections.items() if r == "o"}
        columns.discard(None)
        alone = sum(not s.variant for s in self.sections) <= 1
        ranked = []
        for section in self.sections:
            if section.layer not in (None, *numbers[:1]):
                continue
            named = _affinity(section, module.path)
            same = section.values.get("d_model") in columns and not section.staged
            stated = bool(columns & section.widths.keys())
            if named < 0 and not alone:
                continue
            if alone or named or same or stated or not columns:
                rank = (section.layer is None, -named, not same, section.variant)
                ranked.append((rank, section))
        ranked.sort(key=lambda pair: pair[0])
        if any(
            -rank[1] > 0 and not rank[2] for rank, _ in ranked
        ):  # one is meant by name and width
            ranked = [pair for pair in ranked if -pair[0][1] > 0 or not pair[0][0]]
        return [section for _, section in ranked]

    def _belongs(
        self, module: Module, reading: Reading, order: list[Section], *, main: bool
    ) -> Section | None:
        """Return the section that must be meant, though it does not fit; None if none need be."""
        width = forced([f.relation for f in reading.facts if f.kind != "likely"])
        plain = [s for s in order if not s.variant]
        for section in order:
            same = section.values.get("d_model") == width.get("d_model", -1)
            if _affinity(section, module.path) > 0 and (same or not section.variant):
                return section
            if same and not section.variant:
                return section
        return plain[0] if main and len(plain) == 1 else None

    def _packing(self, where: str, module: Module) -> None:
        forms = {p.form for p in module.projections.values()} - {"plain"}
        for form in sorted(forms):
            of = [p for p in module.projections.values() if p.form == form]
            names = ", ".join(p.name for p in of)
            if form in {"LoRA", "IA3"}:
                text = (
                    f"{where}: {form} adapters of {names}: widths are those of the adapted weights"
                )
            else:
                known = ", ".join(f"{p.name} {p.rows} rows" for p in of if p.rows) or "no width"
                text = f"{where}: {names}: {form}: stored shapes are no widths; known: {known}"
            self.report.notes.append(text)

    def _differing(self, family: Family) -> None:
        """Name the layers of a family that differ from the most of them."""
        ranked = sorted(family.kinds, key=len, reverse=True)
        most = ranked[0]
        if 2 * len(most) <= sum(map(len, ranked)) or len(ranked) > 4:
            return
        for kind in ranked[1:]:
            for role, p in kind[0].projections.items():
                other = most[0].projections.get(role)
                if other is not None and other.shape != p.shape:
                    self.report.notes.append(
                        f"{place(kind)} differs from {place(most)}: {p.shown} there, "
                        f"{other.shown} in the others"
                    )
                    break


def _choice(options: list[Reading], order: list[Section]) -> tuple[Reading, Section] | None:
    """Return the first reading and section that agree: named and strict ones before the others."""
    for reading in options:
        if not reading.loose:
            for section in order:
                if _fits(reading, section):
                    return reading, section
    for reading in options:
        for section in order:
            wide = _of_other_width(section, reading)
            if wide is not None and _fits(reading, wide):
                return reading, wide
    return None


def _of_other_width(section: Section, reading: Reading) -> Section | None:
    """Return the section without its d_model, if the widths that stand instead are stated too."""
    widths = {
        f.relation.value
        for f in reading.facts
        if isinstance(f.relation, Equation) and f.relation.stated == "d_model"
    }
    stated = section.values.get("d_model")
    if stated is None or section.staged:
        return section
    if reading.loose and widths == {stated}:
        return None
    if widths - section.widths.keys() and reading.output != stated:
        return None
    values = {n: v for n, v in section.values.items() if n != "d_model"}
    return replace(section, values=values)


def _is_latent(reading: Reading) -> bool:
    return reading.layout.startswith("latent")


def _fits(reading: Reading, section: Section | None = None) -> bool:
    facts: list[Fact] = [f for f in reading.facts if f.kind != "likely"]
    if section is not None:
        facts += section.facts(_is_latent(reading))
    return possible([*(f.relation for f in facts), *reading.background])


def _affinity(section: Section, path: str) -> int:
    """Count the words of a section's name that stand in a module's path; -1 if it is another's."""
    words = [w.lower() for w in re.split(r"[._]", section.name) if w]
    full = path.lower()
    outer = full.rpartition(".")[0]  # ``decoder.layers.0.encoder_attn`` is the decoder's
    found = 0
    for word in words:
        meant = next((kind for kind in _KINDS if word in kind), (word,))
        others = {w for kind in _KINDS if kind is not meant and word in _ANY_KIND for w in kind}
        low = outer if word in {"encoder", "decoder"} else full
        if word not in {"config", "model", "cfg"} and any(w in low for w in meant):
            found += 1
        elif any(w in low for w in others):
            return -1
    return found


def _candidates(found: list[dict[str, int]], module: Module) -> tuple[Candidate, ...]:
    rotary = {h.value for h in module.hints if h.unknown == "rotary"}
    kept = [s for s in found if _NARROWEST <= s.get("d_k", 0) <= _WIDEST] or found
    out = []
    for sizes in sorted(kept, key=lambda s: s.get("d_k", 0)):
        shown = {n: sizes[n] for n in _SHOWN if n in sizes and n != "d_model"}
        usual = sizes.get("d_k") in (rotary or USUAL_WIDTHS)
        out.append(Candidate(shown, usual))
    return tuple(out)


def complete_latent(sizes: dict[str, int]) -> None:
    """Add what follows for low-rank attention: heads of both parts, as many keys as queries."""
    if "nope" in sizes:
        sizes["d_k"] = sizes["nope"] + sizes.get("rope", 0)
    if "h" in sizes:
        sizes["h_kv"] = sizes["h"]
