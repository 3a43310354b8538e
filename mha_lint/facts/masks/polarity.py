"""Masks that are read the wrong way round: what they hide is what they were meant to keep."""

from __future__ import annotations

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.masks.effects import effects_of, joins, lets_through, reads
from mha_lint.facts.masks.hidden import closed_by
from mha_lint.facts.masks.joins import (
    call_line,
    fill_of,
    handed_over,
    is_fixed,
    line_of_its_own,
    made_at,
    meeting_of,
)
from mha_lint.facts.masks.roots import Root, roots_of, whole
from mha_lint.facts.masks.signs import OPPOSITE, Sign, signs_of, written
from mha_lint.facts.masks.triangles import turned_triangle, turned_window
from mha_lint.facts.masks.words import comments_say, name_says, parameters_of
from mha_lint.facts.places import span_of
from mha_lint.model.contract import Contract
from mha_lint.model.mask_fit_facts import Inversion
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject


def inversions(subject: Subject, bench: Bench, site: Site, contract: Contract) -> list[Inversion]:
    """Return what `site` (a member) hides that it should keep."""
    found = turned_triangle(subject, bench, site) or turned_window(subject, bench, site)
    if found is not None:
        return [found]
    out: list[Inversion] = []
    for root in roots_of(bench, site):
        one = _read_wrongly(subject, bench, site, root, contract)
        if one is not None:
            out.append(one)
    return out


def _read_wrongly(
    subject: Subject, bench: Bench, site: Site, root: Root, contract: Contract
) -> Inversion | None:
    if root.additive:
        return None
    done = reads(effects_of(bench, site, root))
    if not done:
        return None
    signs = signs_of(subject, bench, site, root, done, contract)
    against = _outweighing(signs, done)
    if not against:
        return None
    certain = any(s.weight >= 2 for s in against)
    if not certain and (joins(bench, site, root) or not _lies_on_keys(bench, site, root)):
        return None
    if not lets_through(bench, site, root):
        return None
    join = fill_of(
        bench, site, root.node, (whole(bench, root, root.on), whole(bench, root, root.off))
    )
    meeting = meeting_of(bench, site, root.node)
    witness = _witness(bench, site, root, done)
    return _inversion(bench, site, root, done, against, join, meeting, witness)


def closed_wrongly(
    subject: Subject, bench: Bench, site: Site, contract: Contract
) -> list[Inversion]:
    """Return the masks that hide every key of a site of which nothing else can be measured."""
    found = []
    for one in closed_by(bench, site):
        against = _outweighing(
            signs_of(subject, bench, site, one.root, one.reads, contract), one.reads
        )
        if against:
            witness = "every key of the call is hidden, and none would be the other way round"
            found.append(
                _inversion(
                    bench, site, one.root, one.reads, against, one.join, one.meeting, witness
                )
            )
    return found


def _outweighing(signs: list[Sign], done: str) -> list[Sign]:
    """Return the signs against what is done, if they outweigh those for it."""
    against = [s for s in signs if s.meaning == OPPOSITE[done]]
    agree = sum(s.weight for s in signs if s.meaning == done)
    return against if sum(s.weight for s in against) > agree else []


def _inversion(
    bench: Bench,
    site: Site,
    root: Root,
    done: str,
    against: list[Sign],
    join: Node | None,
    meeting: Node | None,
    witness: str,
) -> Inversion:
    made, read = made_at(bench, root.node), span_of(join)
    fixed = is_fixed(bench, join)
    built = bool(
        not fixed and made is not None and join is not None and handed_over(root.node, join)
    )
    if meeting is not None:
        span, built = span_of(meeting), True
    elif made is None and _told(bench, site, done):
        span, built = call_line(site, join, None), True
    else:
        span = made if built else line_of_its_own(bench, site, join, _others(bench, site)) or made
    other = read if built else made
    return Inversion(
        "polarity",
        root.argument if not root.compares else written(root),
        done,
        tuple(s.words for s in against),
        any(s.weight >= 2 for s in against),
        built,
        span,
        other if other != span else None,
        witness,
    )


def _told(bench: Bench, site: Site, done: str) -> bool:
    """Return whether the attention is a module of its own that says how it reads its mask.

    Then the call that hands it a mask of the other convention is at fault.
    """
    module = bench.recording.module
    path = str(site.context.meta.get("module", ""))
    if module is None or not path:
        return False
    inner = module.get_submodule(path)
    for source in class_sources(type(inner)):
        for name in parameters_of(source.node, "forward"):
            if name_says(name) == done:
                return True
            said = comments_say(source.text, name, only=False)
            if said is not None and said.meaning == done and "mask" in name.lower():
                return True
    return False


def _others(bench: Bench, site: Site) -> list[Site]:
    return [s for s in bench.sites if s.all[0] is not site]


def _lies_on_keys(bench: Bench, site: Site, root: Root) -> bool:
    """Return whether each element that was turned over acts on whole columns of keys."""
    for effect in effects_of(bench, site, root):
        g, _, j = effect.moves.nonzero(as_tuple=True)
        for group in set(g.tolist()):
            if len(set(j[g == group].tolist())) > 2 and root.placed:
                return False
    return True


def _witness(bench: Bench, site: Site, root: Root, done: str) -> str:
    """Return how many pairs one element of the mask takes away or gives back when turned to yes."""
    effects = effects_of(bench, site, root)
    if not effects:
        return ""
    first = effects[0]
    b, t = (int(x.flatten()[first.index]) for x in (root.samples, root.positions))
    where = f" of sample {b}, position {t}" if b >= 0 and t >= 0 else ""
    verb = "hides" if done == "hide" else "shows"
    return f"turning the element{where} to True {verb} {int(first.moves.sum())} pairs of a query and a key"
