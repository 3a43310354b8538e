"""What contradicts itself inside one section of a config, without any checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mha_lint.dims.config import (
    ALIASES,
    ROTARY_PLACES,
    ROTARY_SHARE,
    ROTARY_SIGNS,
    ROTARY_WIDTH,
    Section,
    is_size,
)
from mha_lint.dims.data import NAMES, Contradiction
from mha_lint.dims.solve import divisors


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that is unusual and legal."""

    message: str


def check_section(section: Section, *, settled: bool) -> Iterator[Contradiction | Remark]:
    """Yield what the section says against itself; `settled`: the head width is known elsewhere."""
    values = section.values
    impossible = [name for name, value in values.items() if value <= 0]
    for name in impossible:
        yield _against(
            section, [name], f"{section.key(name)} = {values[name]}: it must be positive"
        )
    if impossible:
        return
    yield from _two_names(section)
    yield from _widths(section, settled)
    if section.latent:
        yield from _latent(section)
    else:
        yield from _groups(section)
    yield from _rotary(section)


def _against(section: Section, names: list[str], message: str) -> Contradiction:
    return Contradiction(message, tuple(section.key(n) for n in names), _place(section))


def _place(section: Section) -> str:
    return f"config {section.name}" if section.name else "config"


def _two_names(section: Section) -> Iterator[Contradiction]:
    """One size stated twice, by keys that mean the same."""
    for unknown, keys in (("h", ALIASES["h"][:3]), ("h_kv", ALIASES["h_kv"][:3])):
        given = {k: section.raw[k] for k in keys if is_size(section.raw.get(k))}
        if len(set(given.values())) > 1 and not section.variant:
            said = " and ".join(f"{k} = {v}" for k, v in given.items())
            message = f"the config says {said}: both mean {NAMES[unknown]}"
            yield Contradiction(message, tuple(f"config {k}" for k in given), _place(section))


def _widths(section: Section, settled: bool) -> Iterator[Contradiction | Remark]:
    values = section.values
    if "h" not in values or "d_model" not in values or section.latent or section.staged:
        return
    heads, width = values["h"], values["d_model"]
    named = f"{section.key('d_model')} = {width}"
    if "d_k" in values:
        if values["d_k"] * heads != width:
            yield Remark(
                f"{section.key('d_k')} = {values['d_k']} and {section.key('h')} = {heads}: heads are "
                f"{heads} x {values['d_k']} = {heads * values['d_k']} wide in all, d_model is {width}; "
                "that is legal, q_proj and o_proj are then not square"
            )
    elif width % heads and not settled:
        below = [n for n in divisors(width) if n < heads][-1:]
        near = below + [n for n in divisors(width) if n > heads][:1]
        yield _against(
            section,
            ["d_model", "h"],
            f"{named} is not divisible by {section.key('h')} = {heads}: {width} = {heads} x "
            f"{width // heads} + {width % heads}, and no head_dim is stated; the nearest head counts "
            f"that divide it are {' and '.join(map(str, near))}",
        )


def _groups(section: Section) -> Iterator[Contradiction]:
    heads, groups = section.values.get("h"), section.values.get("h_kv")
    if heads and groups and heads % groups:
        yield _against(
            section,
            ["h", "h_kv"],
            f"{section.key('h')} = {heads} is not divisible by {section.key('h_kv')} = {groups} "
            f"(remainder {heads % groups}): the query heads cannot be shared evenly among the "
            "key/value heads",
        )


def _latent(section: Section) -> Iterator[Contradiction]:
    values = section.values
    whole = section.raw.get("qk_head_dim")
    if is_size(whole) and {"nope", "rope"} <= values.keys():
        total = values["nope"] + values["rope"]
        if whole != total:
            yield Contradiction(
                f"{section.key('nope')} = {values['nope']} and {section.key('rope')} = {values['rope']} "
                f"add up to {total}, config qk_head_dim = {whole}",
                (section.key("nope"), section.key("rope"), "config qk_head_dim"),
                _place(section),
            )
    if values["rope"] % 2:
        yield _against(
            section,
            ["rope"],
            f"{section.key('rope')} = {values['rope']} is odd: rotary embedding turns channels in pairs",
        )


def _rotary(section: Section) -> Iterator[Contradiction | Remark]:
    raw, values = section.raw, section.values
    if section.latent or section.variant:
        return
    width = values.get("d_k")
    source = section.key("d_k") if width else ""
    if width is None and {"h", "d_model"} <= values.keys() and not values["d_model"] % values["h"]:
        width = values["d_model"] // values["h"]
        source = f"{section.key('d_model')} / {section.keys.get('h')}"
    if width is None:
        return
    place = _place(section)
    for key in ROTARY_WIDTH:
        turned = raw.get(key)
        if not is_size(turned) or turned <= 0:
            continue
        if turned > width:
            yield Contradiction(
                f"config {key} = {turned} is larger than head_dim = {width} ({source})",
                (f"config {key}", source),
                place,
            )
        elif turned % 2:
            yield _odd(f"config {key} = {turned}", (f"config {key}",), place)
        return
    yield from _share(section, width, source)


def _share(section: Section, width: int, source: str) -> Iterator[Contradiction | Remark]:
    raw, place = section.raw, _place(section)
    places = [
        ("", raw),
        *((f"{p}.", raw[p]) for p in ROTARY_PLACES if isinstance(raw.get(p), dict)),
    ]
    shares = [(f"{p}{k}", part[k]) for p, part in places for k in ROTARY_SHARE if k in part]
    for key, share in shares:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1e9:
            continue
        turned = int(width * share)
        if share > 1 and share == turned // width:
            yield Remark(
                f"config {key} = {share} is a share of head_dim = {width} ({source}) elsewhere; here "
                "it can only be something else"
            )
        elif share > 1:
            yield Contradiction(
                f"config {key} = {share} of head_dim = {width} ({source}) is {turned}, more than the "
                "head holds",
                (f"config {key}", source),
                place,
            )
        elif turned % 2:
            yield _odd(
                f"config {key} = {share} of head_dim = {width} ({source}) is {turned}, which",
                (f"config {key}", source),
                place,
            )
        return
    if width % 2 and any(raw.get(sign) for sign in ROTARY_SIGNS):
        yield _odd(f"head_dim = {width} ({source})", (source,), place)
        return
    for key, part in places:
        parts = part.get("mrope_section")
        if isinstance(parts, list) and parts and all(is_size(n) for n in parts):
            if 2 * sum(parts) not in (width, 2 * width):
                yield Contradiction(
                    f"config {key}mrope_section = {parts} turns 2 x {sum(parts)} = {2 * sum(parts)} "
                    f"channels, head_dim is {width} ({source})",
                    (f"config {key}mrope_section", source),
                    place,
                )
            return


def _odd(what: str, sources: tuple[str, ...], place: str) -> Contradiction:
    return Contradiction(f"{what} is odd: rotary embedding turns channels in pairs", sources, place)
