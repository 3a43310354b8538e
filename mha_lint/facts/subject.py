"""Put the facts of one subject together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

from mha_lint.facts.axis_words import source_text
from mha_lint.facts.batch import measure_batch
from mha_lint.facts.bench import Bench
from mha_lint.facts.branches import Branch, branch_masks, branch_scales, branches_of
from mha_lint.facts.callers import at_their_calls
from mha_lint.facts.configured import passed_numbers
from mha_lint.facts.contract import contract_of
from mha_lint.facts.families import with_families, with_subject_families, without_calls
from mha_lint.facts.heads import measure_dims
from mha_lint.facts.layout import as_given, measure_split
from mha_lint.facts.lost_values import with_lost_values
from mha_lint.facts.merge import measure_merge
from mha_lint.facts.normaliser import measure_normaliser
from mha_lint.facts.output import OutputPath, measure_output, output_path, residual_inputs
from mha_lint.facts.reach import WHOLE, Reach
from mha_lint.facts.roles import measure_overwritten, measure_roles, measure_stacked
from mha_lint.facts.routing import without_routing
from mha_lint.facts.scale import measure_scale, scale_span
from mha_lint.facts.sharing import channels_read
from mha_lint.facts.sizes import (
    SecondSize,
    ignored_head_count,
    scale_elsewhere,
    second_size,
    size_failures,
)
from mha_lint.facts.spans import site_spans
from mha_lint.facts.truncation import measure_truncation
from mha_lint.facts.usage import (
    all_dropouts,
    dropout_uses,
    is_deterministic,
    unused_inputs,
    unused_modules,
)
from mha_lint.model.facts import (
    Dims,
    Fact,
    Kind,
    Known,
    Layout,
    LayoutKind,
    NotApplicable,
    Roles,
    Scale,
    SiteFacts,
    SiteInfo,
    SizeFailure,
    SubjectFacts,
    Unknown,
)
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

FLIPPED = "each flag was flipped and the call recorded again"


@dataclass(slots=True)
class Measurement:
    """The facts, and what they were measured on (for the cross-check)."""

    facts: SubjectFacts
    bench: Bench
    second: SecondSize | None
    paths: list[OutputPath]
    branches: list[Branch]


def measure(subject: Subject, bench: Bench, reach: Reach = WHOLE) -> Measurement:
    """Measure every fact of `subject`, which was recorded into `bench`, as far as `reach` says."""
    contract = contract_of(subject)
    second = second_size(subject, bench) if bench.sites and reach.called else None
    branches = branches_of(subject) if bench.sites and reach.called and reach.flips else []
    paths = [output_path(bench, s) for s in bench.sites]
    dims = [measure_dims(bench, s) for s in bench.sites]
    numbers = subject.stated | passed_numbers(subject)
    scales = [
        measure_scale(bench, s, d, p, scale_elsewhere(second, i), numbers)
        for i, (s, d, p) in enumerate(zip(bench.sites, dims, paths, strict=True))
    ]
    if subject.how in ("built", "inferred"):
        scales = [_unless_one_input(s, f) for s, f in zip(bench.sites, scales, strict=True)]
        scales = [_unless_turned(s, f) for s, f in zip(bench.sites, scales, strict=True)]
        scales = [
            _unless_widened(s, d, f) for s, d, f in zip(bench.sites, dims, scales, strict=True)
        ]
    flipped = branch_scales(branches, bench, scales)
    masked = branch_masks(branches, bench)
    names: Counter[str] = Counter()
    sites: list[SiteFacts] = []
    for index, (site, path, dim, scale, others) in enumerate(
        zip(bench.sites, paths, dims, scales, flipped, strict=True)
    ):
        splits = tuple(_split(bench, second, index, w) for w in "qkv")
        if subject.how in ("built", "inferred"):
            splits = tuple(
                _unless_ready_made(site, w, x) for w, x in zip("qkv", splits, strict=True)
            )
        roles = measure_roles(bench, site)
        if isinstance(roles, Known):
            added_to = residual_inputs(bench, site, path)
            roles = dataclasses.replace(
                roles, value=dataclasses.replace(roles.value, residual=added_to)
            )
        if any(isinstance(x, Known) and x.value.kind is not LayoutKind.RIGHT for x in splits):
            roles = _without_sharing(roles)
        owner = str(site.context.meta.get("module_class") or subject.name).split(".")[-1]
        info = SiteInfo(
            id=f"{owner}.{names[owner]}",
            module=str(site.context.meta.get("module", "")),
            kind=site.kind,
            spans=site_spans(bench, site, path, scale_span(scale)),
            mask=_mask(bench, site),
            owner_class=owner,
            repeated=int(site.context.meta.get("repeated", 1)),
        )
        names[owner] += 1
        overwritten = measure_overwritten(bench, site)
        chained = isinstance(overwritten, Known) and bool(overwritten.value)
        sites.append(
            SiteFacts(
                info=info,
                dims=dim,
                scale=scale,
                normaliser=measure_normaliser(bench, site, path),
                split_q=splits[0],
                split_k=splits[1],
                split_v=splits[2],
                merge=NotApplicable("each head of the loop reads what the one before made")
                if chained
                else measure_merge(bench, site, path, splits),
                roles=roles,
                output_projection=measure_output(
                    bench, site, dim, path, _declared(bench, site, path)
                ),
                stacked=measure_stacked(bench, site, path),
                dropouts=Known(dropout_uses(bench, site), "recorded in eval mode"),
                branch_scales=Known(others, FLIPPED),
                branch_masks=Known(masked[index], FLIPPED),
                overwritten=overwritten,
            )
        )
        sites[-1] = without_routing(bench, site, with_lost_values(bench, site, sites[-1]))
        if not reach.only_sizes:
            sites[-1] = with_families(subject, bench, site, sites[-1], contract)
    text = source_text(subject.module)
    training = getattr(bench.recording.module, "training", None)
    batch = measure_batch(
        bench, bench.sites, subject.module, text, guessed=subject.how not in ("stated", "usage")
    )
    if isinstance(batch, Known) and batch.value.mixes:
        sites = [_told_of_the_batch(s) for s in sites]
    facts = SubjectFacts(
        name=subject.name,
        span=subject.span,
        sites=tuple(at_their_calls(bench.sites, sites)),
        batch=batch,
        deterministic=is_deterministic(bench),
        dropouts=all_dropouts(bench, bench.sites, in_eval=training is False),
        unused_inputs=unused_inputs(bench, bench.sites, guessed=not subject.real),
        unused_modules=unused_modules(bench, bench.sites),
        truncation=measure_truncation(bench, bench.sites, dims, _head_dims(subject), subject.sizes),
        size_failures=NotApplicable("measured on the subject itself")
        if not reach.called
        else Known(_failures(subject, bench, dims, sites), "sizes were changed one by one"),
        crosscheck=Known((), ""),
        contract=contract,
    )
    facts = (
        without_calls(bench, facts, reach.uncallable)
        if reach.uncallable
        else with_subject_families(subject, bench, facts)
    )
    return Measurement(facts, bench, second, paths, branches)


def _split(bench: Bench, second: SecondSize | None, index: int, which: str) -> Fact[Layout]:
    """Return the head split; where T equals h, d_k or B, the other size tells what is meant."""
    site = bench.sites[index]
    fact = measure_split(bench, site, which)
    if second is None or not isinstance(fact, Known):
        return fact
    sizes = tuple(bench.replay.base(site.scores).shape)
    if len(set(sizes)) == len(sizes) - 1 and site.kind is Kind.SELF and len(sizes) > 2:
        return fact  # only T_q and T_k agree
    if _heads(bench, site) > 1 == _heads(second.bench, second.bench.sites[index]):
        return fact  # one head is not split at all
    other = measure_split(second.bench, second.bench.sites[index], which)
    if not isinstance(other, Known) or fact.value.kind is not LayoutKind.RIGHT:
        return other if isinstance(other, Known) else fact
    # Windows that do not divide the other length mix samples there: that is no fault of the heads.
    return other if "channels" in other.value.rows else fact


def _heads(bench: Bench, site: Site) -> int:
    dims = measure_dims(bench, site)
    return dims.value.num_heads if isinstance(dims, Known) else 0


def _failures(
    subject: Subject, bench: Bench, dims: list[Fact[Dims]], sites: list[SiteFacts]
) -> tuple[SizeFailure, ...]:
    """Return what breaks at other sizes, and a head count that does not follow its argument."""
    found = size_failures(subject, bench)
    splits = [x for s in sites for x in (s.split_q, s.split_k, s.split_v)]
    if any(isinstance(x, Known) and x.value.kind is not LayoutKind.RIGHT for x in splits):
        return found  # what a wrong split makes of the heads cannot be counted
    split = sites[0].split_q if sites else None
    span = split.value.span if isinstance(split, Known) else None
    ignored = ignored_head_count(subject, bench, dims, span)
    return (*found, ignored) if ignored is not None else found


def _unless_ready_made(site: Site, which: str, split: Fact[Layout]) -> Fact[Layout]:
    """Leave the split open where the argument has its heads apart: K may be meant as (B, h, d, T)."""
    operand = {"q": site.all[0].q, "k": site.all[0].k, "v": site.all[0].v}[which]
    source = operand.source if operand is not None else None
    if source is None or source.kind != "input" or len(source.data_axes) < 3:
        return split
    if isinstance(split, Known) and split.value.kind is LayoutKind.SCRAMBLED:
        return Unknown(f"which axis of {which} holds positions was guessed: pass --call")
    return split


def _unless_one_input(site: Site, scale: Fact[Scale]) -> Fact[Scale]:
    """Leave the scale open where q, k and v are cut from one argument whose width is a guess."""
    ends = [o for o in (site.q, site.k) if o is not None]
    if any(o.source is None or o.source.kind != "input" or o.trace is None for o in ends):
        return scale
    if len({o.source.node for o in ends if o.source is not None}) != 1:
        return scale
    if len({channels_read(o) for o in ends}) == 1:
        return scale
    if isinstance(scale, Known) and not scale.value.right:
        return Unknown("q, k and v are parts of one argument, whose width was guessed: pass --call")
    return scale


def _unless_turned(site: Site, scale: Fact[Scale]) -> Fact[Scale]:
    """Leave the scale open where the length of the keys was taken for the width of q and k."""
    ends = [o for o in (site.all[0].q, site.all[0].k) if o is not None and as_given(o)]
    turned = any(o.varies[a].data for o in ends for a in o.features)
    if turned and isinstance(scale, Known) and not scale.value.right:
        return Unknown("the keys are taken as (..., width, T_k), and were guessed: pass --call")
    return scale


def _unless_widened(site: Site, dims: Fact[Dims], scale: Fact[Scale]) -> Fact[Scale]:
    """Leave the scale open where the heads have more channels than their projection made.

    Code that pairs channels gains one where a guessed width is odd.
    """
    q = site.all[0].q
    if q is None or q.source is None or q.source.kind != "projection" or site.members:
        return scale
    if not isinstance(dims, Known) or not isinstance(scale, Known) or scale.value.right:
        return scale
    if dims.value.num_heads * dims.value.head_dim > q.source.out_width:
        return Unknown(
            "the guessed width does not fit: heads have channels of their own: pass --build"
        )
    return scale


def _told_of_the_batch(site: SiteFacts) -> SiteFacts:
    """Drop splits whose rows are samples: that samples meet is told of the whole subject."""

    def kept(split: Fact[Layout]) -> Fact[Layout]:
        over = isinstance(split, Known) and split.value.kind is LayoutKind.OVER_BATCH
        return NotApplicable("attention runs over samples") if over else split

    return dataclasses.replace(
        site,
        split_q=kept(site.split_q),
        split_k=kept(site.split_k),
        split_v=kept(site.split_v),
    )


def _without_sharing(roles: Fact[Roles]) -> Fact[Roles]:
    """Drop what a wrong split makes of the channels: q, k and v may all seem to read the same ones."""
    if not isinstance(roles, Known):
        return roles
    return dataclasses.replace(
        roles, value=dataclasses.replace(roles.value, same=(), heads_share=(), unused=())
    )


def _head_dims(subject: Subject) -> dict[str, int]:
    """Return the integers that were given as a head width of its own."""
    words = (
        "head_dim",
        "dim_head",
        "d_k",
        "dk",
        "d_kv",
        "head_size",
        "key_dim",
        "qk_dim",
        "size_per_head",
    )
    return {n: v for n, v in subject.sizes.items() if any(w in n.lower() for w in words)}


def _declared(bench: Bench, site: Site, path: OutputPath) -> tuple[str, ...]:
    """Return matrices declared beside the projections that are applied nowhere, as W_O may be."""
    module = bench.recording.module
    if module is None or path.map is not None:
        return ()
    owner = str(site.context.meta.get("module", ""))
    live = bench.dependence.live_parameters
    found = []
    for name, parameter in module.named_parameters():
        inside = name.startswith(owner + ".") if owner else True
        if inside and name not in live and parameter.dim() >= 2:
            found.append(name)
    return tuple(found)


def _mask(bench: Bench, site: Site) -> str:
    """Return what hides scores: "none", "causal" or "given"."""
    first = site.all[0]
    if (
        first.score is None
        or first.normaliser.element != "softmax"
        or first.kind in (Kind.LINEAR, Kind.CHANNEL)
    ):
        return "none"
    weights = bench.replay.base(first.normaliser.weights)
    hidden = weights == 0
    if not bool(hidden.any()):
        path = bench.dependence.between(first.scores, first.normaliser.logits)
        return "given" if any(op(n) in ("masked_fill", "where") for n in path) else "none"
    if first.to_logits is None or not first.row_axes or not first.key_axes:
        return "given"
    index = bench.finder.unmasked_index(first)
    row, key = index[first.row_axes[-1]], index[first.key_axes[-1]]
    sizes = bench.replay.base(first.scores).shape
    offset = sizes[first.key_axes[-1]] - sizes[first.row_axes[-1]]
    if row.shape != hidden.shape:
        return "given"
    future = key > row + max(0, offset)
    return "causal" if bool((hidden == future).all()) else "given"
