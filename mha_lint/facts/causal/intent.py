"""What says that code is meant to be causal, besides its own masks: the user, a flag, a name."""

from __future__ import annotations

import ast
import dataclasses
import re
from dataclasses import dataclass

from torch import nn

from mha_lint.facts.axis_words import source_text
from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources, tree_of
from mha_lint.facts.contract import CAUSAL_FLAGS, contract_of, is_for_every_use, said_by_name
from mha_lint.facts.declaration import declared_at
from mha_lint.model.contract import Contract
from mha_lint.sites.site import Site
from mha_lint.targets.infer.input_names import MASK
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.subject import Subject

AHEAD = re.compile(
    r"look[-_ ]{0,3}ahead(?![-_ ]*mask)|right[-_ ]{0,3}(context|frames?|width|window)|delay|(?<!get_)n_ahead"
    r"|(num|max|some|few|next|of|n|t|see\w*|read\w*)[-_ ]+(the[-_ ]+)?future"
    r"|future[-_ ]*(frames?|steps?|context|size|window|len)|chunk(?!\()|block[-_ ]{0,3}(causal|wise)"
    r"|multi[-_ ]{0,3}token",
    re.IGNORECASE,
)
"""Words of designs in which every position may see a few later ones; the mask itself may be called
``future`` or ``look_ahead_mask``."""
LATENT = re.compile(
    r"VAE|\bc?vae\b|[Vv]ariational|[Aa]uto-?[Ee]ncod|[Pp]osterior|[Rr]eparam|log_?var"
)
"""Words of code that encodes the whole of a sequence and then decodes the same one."""
WHOLE = re.compile(
    r"(two|second|full)[- _]?(pass|context|stage|attention)|non[-_]?causal|bidirectional|cascad|deliberat"
    r"|refine",
    re.IGNORECASE,
)
"""Words of stacks of which a part reads the whole on purpose."""
ROUNDED = re.compile(r"quanti[sz]|int8|fp8|bitlinear", re.IGNORECASE)
"""Words of code that scales by the largest number of a tensor, whichever position holds it."""
STRICTLY = re.compile(
    r"strict|exclud\w* (it|the)?\s*self|(earlier|previous|past) (ones |tokens |positions |steps )?only"
    r"|only (strictly )?(earlier|previous|past)|not (see |attend to )?itself",
    re.IGNORECASE,
)
"""Words of designs in which a position reads only those before it."""
ENCODED = re.compile(
    r"(^|[._])(enc|encode|encoder|post|posterior|style|prior)([._]|$)", re.IGNORECASE
)
"""Modules and functions that make one state of a sequence."""
_PADDING = re.compile(r"pad|length|valid|^key_|segment|attention_mask")


@dataclass(frozen=True, slots=True)
class Meant:
    """``source``: what says that the code is meant to be causal; ``stated``: the user does."""

    source: str
    stated: bool = False


def meant_causal(
    subject: Subject, bench: Bench, sites: list[Site], contract: Contract
) -> Meant | None:
    """Return what says that the subject is meant to be causal, None if nothing does.

    Names say nothing where the caller can pass a mask: hiding the future may be his to do.
    """
    entry = contract.entry("causal")
    if entry is not None and entry.stated:
        return Meant("it is expected to be", True)
    if any(e.key in ("causal", "bidirectional") for e in contract.entries) and entry is None:
        return None  # the user, a flag or a name says the opposite
    source = entry.source if entry is not None else _said_by_owners(subject, bench, sites)
    if source is None or takes_a_mask(subject):
        return None
    return Meant(source)


def takes_a_mask(subject: Subject) -> bool:
    """Return whether the call has an argument for a mask that is not one for padding."""
    target = subject.module.forward if isinstance(subject.module, nn.Module) else subject.module
    names = [p.name.lower() for p in parameters_of(target)]
    return any(MASK.search(n) and not _PADDING.search(n) for n in names)


def _said_by_owners(subject: Subject, bench: Bench, sites: list[Site]) -> str | None:
    """Return what the parts that hold `sites` say by a flag or by their class, unless a flag is off."""
    flags = [_flag(_owners(bench, site)) for site in sites]
    if any(flag is not None and flag[1] is False for flag in flags):
        return None
    if flags and all(flags) and flags[0] is not None:
        return flags[0][0]
    for site in sites:
        for owner in _owners(bench, site):
            said = _said_of(subject, owner)
            if said is not None:
                return said
    return None


def _flag(owners: list[nn.Module]) -> tuple[str, bool] | None:
    """Return what the innermost flag of `owners` says, and whether it is on; None if there is none."""
    for owner in owners:
        for name in sorted(CAUSAL_FLAGS):
            value = vars(owner).get(name)
            if isinstance(value, bool) and not (value and is_for_every_use(owner, name)):
                return f"attribute {name}={value} of {type(owner).__name__}", value
    return None


def is_asked_to_see_all(bench: Bench, site: Site) -> bool:
    """Return whether the line that makes a part around `site` switches its causal flag off outright."""
    path = str(site.context.meta.get("module", ""))
    owners = _owners(bench, site)
    said = _flag(owners)
    while path and said is not None and said[1] is False:
        made = declared_at(bench.recording.module, path)
        if made is not None and any(
            keyword.arg in CAUSAL_FLAGS
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is False
            for call in ast.walk(tree_of(made.path))
            if isinstance(call, ast.Call) and made.line <= call.lineno <= made.end_line
            for keyword in call.keywords
        ):
            return True
        path = path.rpartition(".")[0]
    return False


def _said_of(subject: Subject, owner: nn.Module) -> str | None:
    """Return what name or docstring of the class of `owner` says of causality."""
    if type(owner).__module__.startswith("torch."):
        return None
    name = type(owner).__name__
    said = next((e for e in said_by_name(name) if e.key == "causal"), None)
    if said is not None:
        return said.source
    part = dataclasses.replace(subject, name=name, module=owner, stated={})
    entry = contract_of(part).entry("causal")
    if entry is None or entry.value is not True or not entry.source.startswith("docstring"):
        return None
    return f"{entry.source} of {name}"


def _owners(bench: Bench, site: Site) -> list[nn.Module]:
    """Return the modules that hold `site`, the innermost first; the subject itself is left out."""
    found: list[nn.Module] = []
    path = str(site.context.meta.get("module", ""))
    while path and isinstance(bench.recording.module, nn.Module):
        try:
            found.append(bench.recording.module.get_submodule(path))
        except AttributeError:
            break
        path = path.rpartition(".")[0]
    return found


def texts(subject: Subject, bench: Bench, sites: list[Site]) -> str:
    """Return the source of the subject and of the classes that hold `sites`."""
    found = [source_text(subject.module)]
    classes = {type(o) for s in sites for o in _owners(bench, s)}
    found += sorted(s.text for c in classes for s in class_sources(c))
    return "\n".join(found)
