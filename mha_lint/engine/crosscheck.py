"""Hand each site to the oracle as data, with the module's own weights, and take its verdict.

What a site means is compared in float64. Where the module is in half precision, or ``--dtype`` asks
for another type, what it loses there is measured too, and the verdict is that of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mha_lint.capture import Replay
from mha_lint.engine.arrange import Arranged, arrange, source_tensor
from mha_lint.engine.merge_order import without_own_order
from mha_lint.engine.precision import NotMeasuredError, PrecisionBench, dtype_of
from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import measure_dims
from mha_lint.facts.merge import sample_axes
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.output import OutputPath, output_path
from mha_lint.facts.subject import Measurement
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, SiteFacts, SubjectFacts, Unknown
from mha_lint.model.numeric_facts import HalfLoss
from mha_lint.model.report import CrossCheck
from mha_lint.model.settings import Settings
from mha_lint.oracle import Native, Operand, Precision, SiteData, Verdict, compare, named_scales
from mha_lint.sites.beside import products_beside
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site
from mha_lint.sites.trace import trace, varies_along
from mha_lint.targets.subject import Subject

IN_FULL = NotApplicable("it runs in full precision, and no other type was asked for")


@dataclass(slots=True)
class CheckedSite:
    """The oracle's verdict on one site, the row of the report, and what is lost in its type."""

    verdict: Verdict
    report: CrossCheck
    half: Fact[HalfLoss] = IN_FULL


def cross_check(measured: Measurement, settings: Settings, subject: Subject) -> list[CheckedSite]:
    """Compare every site with the reference: own weights first, other sizes as the second opinion."""
    device = device_of(settings.device)
    precision = PrecisionBench(subject, measured.bench, device)
    own = Replay(measured.bench.recording, seed=3)
    out: list[CheckedSite] = []
    for index, facts in enumerate(measured.facts.sites):
        first = _data(measured.bench, index, own, measured.paths[index], facts)
        second = _second(measured, index, facts)
        try:
            verdict = compare(first, second, device=device)
            if verdict.unexplained and second is not None:
                # What one size cannot tell must not make the other one a mystery.
                alone = compare(first, device=device)
                verdict = verdict if alone.unexplained else alone
        except (RuntimeError, IndexError, ValueError) as error:
            verdict = Verdict(
                "skipped", explanation=f"the comparison failed: {type(error).__name__}: {error}"
            )
        verdict = without_own_order(verdict, facts)
        row = _row(facts, verdict, device)
        half: Fact[HalfLoss] = IN_FULL
        dtype = dtype_of(settings.dtype, measured.bench, measured.bench.sites[index])
        if dtype is not None:
            row, half = _in_dtype(row, verdict, precision, index, dtype, facts)
        out.append(CheckedSite(verdict, row, half))
    return out


def with_half_losses(facts: SubjectFacts, checked: list[CheckedSite]) -> SubjectFacts:
    """Tell the facts of each site what it loses in the type that it runs in."""
    losses = {c.report.site: c.half for c in checked}
    none = NotApplicable("the cross-check was switched off")
    sites = tuple(replace(s, half_loss=losses.get(s.info.id, none)) for s in facts.sites)
    return replace(facts, sites=sites)


def device_of(name: str) -> str:
    """Return the device to compare on: "auto" is CUDA where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _row(facts: SiteFacts, verdict: Verdict, device: str) -> CrossCheck:
    return CrossCheck(
        site=facts.info.id,
        verdict=verdict.verdict,
        departs_at=verdict.departs_at,
        device=device,
        dtype="float64",
        max_abs_error=_one_digit(verdict.max_abs_error),
        tolerance=_one_digit(verdict.tolerance),
        explanation=verdict.explanation,
    )


def _in_dtype(
    row: CrossCheck,
    verdict: Verdict,
    bench: PrecisionBench,
    index: int,
    dtype: torch.dtype,
    facts: SiteFacts,
) -> tuple[CrossCheck, Fact[HalfLoss]]:
    """Return `row` with what the site loses in `dtype`, where float64 leaves that to be asked."""
    factor = _left_of_scale(verdict, facts)
    name = str(dtype).removeprefix("torch.")
    if factor is None:
        return row, _not_asked(verdict, facts, name)
    try:
        found, span = bench.measure(index, dtype, factor=factor)
    except NotMeasuredError as error:
        lost = f"what is lost in {name} was not measured: {error}"
        told = "; ".join(filter(None, (row.explanation, lost)))
        return replace(row, explanation=told), Unknown(lost)
    half = Known(
        HalfLoss(
            name,
            found.ratio,
            found.allowed,
            found.error,
            found.plain_error,
            len(found.ratios),
            span,
        ),
        f"in {name}, beside float64: rms error {found.error:.0e}, that of a straightforward"
        f" implementation {found.plain_error:.0e} (medians of {len(found.ratios)} draws)",
    )
    if verdict.verdict == "mismatch" and found.exceeded:
        return row, _not_asked(verdict, facts, name)  # another scale, and no rounded one
    why: str | None = row.explanation
    if found.exceeded:
        why = _lost(found, name)
    elif verdict.verdict == "mismatch":
        why = f"{name} cannot tell it from the reference; in float64, {why}"
    judged = replace(
        row,
        verdict="mismatch" if found.exceeded else "match",
        departs_at="context" if found.exceeded else None,
        dtype=name,
        max_abs_error=_one_digit(found.error),
        tolerance=_one_digit(found.tolerance),
        explanation=why,
    )
    return judged, half


def _not_asked(verdict: Verdict, facts: SiteFacts, name: str) -> Fact[HalfLoss]:
    """Return why the loss in a type is no question of its own at a site."""
    if verdict.verdict == "mismatch":
        return NotApplicable("it differs from the reference in float64 already")
    if facts.info.kind not in (Kind.SELF, Kind.CROSS):
        return NotApplicable(f"{facts.info.kind} attention has no straightforward implementation")
    return Unknown(f"what is lost in {name} was not measured: {verdict.explanation}")


def _left_of_scale(verdict: Verdict, facts: SiteFacts) -> float | None:
    """Return by how much the due scale exceeds the one found, 1 for a site that matches.

    None for a site that differs in anything else: no rounding of a constant explains that.
    """
    if verdict.verdict == "match":
        return 1.0
    due = _expected(facts, facts.dims.value.head_dim) if isinstance(facts.dims, Known) else None
    scale_only = {d.key for d in verdict.deviations} == {"scale"} and not verdict.unexplained
    if not scale_only or due is None or not isinstance(facts.scale, Known):
        return None
    return due / facts.scale.value.value if facts.scale.value.value else None


def _lost(found: Precision, name: str) -> str:
    """Return how much more is lost than must be."""
    if not math.isfinite(found.ratio):
        return f"in {name} it overflows where a straightforward implementation does not"
    return (
        f"in {name} it loses {found.ratio:.1f} times as much as a straightforward implementation;"
        f" up to {found.allowed:g} times is rounding"
    )


def _one_digit(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.0e}")


def _second(measured: Measurement, index: int, facts: SiteFacts) -> SiteData | None:
    if measured.second is None:
        return _data(measured.bench, index, measured.bench.replay, measured.paths[index], facts)
    bench = measured.second.bench
    return _data(bench, index, bench.replay, output_path(bench, bench.sites[index]), facts)


def _data(bench: Bench, index: int, replay: Replay, path: OutputPath, facts: SiteFacts) -> SiteData:
    site = bench.sites[index]
    if site.kind not in (Kind.SELF, Kind.CROSS):
        return _skipped(f"{site.kind} attention has no reference in multi-head attention")
    if site.instead is not None:
        return _skipped("nothing reads the context: the weights take its place")
    if products_beside(bench.dependence, bench.replay, site.all[0]):
        return _skipped("the scores are put together from several products")
    dims = measure_dims(bench, site)
    if not isinstance(dims, Known):
        return _skipped(dims.why)
    at = dims.value
    try:
        parts = [arrange(bench, member, replay) for member in site.all]
        whole = _joined(parts)
        merged, weight, bias, output = _output_side(bench, site, path, replay)
    except NotArrangedError as error:
        return _skipped(str(error))
    except (RuntimeError, IndexError) as error:
        return _skipped(f"its tensors could not be brought into one order: {error}")
    v = _with_due(bench, site, whole.v, replay, facts)
    return SiteData(
        q=whole.q,
        k=whole.k,
        v=v,
        heads=at.num_heads,
        kv_heads=at.num_kv_heads,
        batch=at.batch,
        head_dim=at.head_dim,
        d_model=at.d_model,
        raw=whole.raw,
        logits=whole.logits,
        weights=whole.weights,
        context=whole.context,
        additive=whole.additive,
        merged=merged,
        output_weight=weight,
        output_bias=bias,
        output=output,
        native=whole.native,
        named_scales=named_scales(
            head_dim=at.head_dim, d_model=at.d_model, num_heads=at.num_heads, t_k=at.t_k,
            num_kv_heads=at.num_kv_heads,
        ),
        expected_scale=_expected(facts, at.head_dim),
    )  # fmt: skip


def _expected(facts: SiteFacts, head_dim: int) -> float | None:
    """Return the scale that is due, None where a design of its own makes none due."""
    if not isinstance(facts.scale, Known):
        return None
    scale = facts.scale.value
    own = scale.normalised or scale.learned or scale.stated is not None or scale.folded is not None
    if own or scale.terms > 1:
        return None
    return float(head_dim**-0.5)


def _skipped(why: str) -> SiteData:
    empty = torch.zeros(0)
    none = Operand(empty)
    return SiteData(
        none, none, none, heads=0, kv_heads=0, batch=0, head_dim=0, d_model=0,
        raw=empty, logits=empty, weights=empty, context=empty, reason_skip=why,
    )  # fmt: skip


def _joined(parts: list[Arranged]) -> Arranged:
    """Join the members of a loop over heads: groups one after the other, sources side by side."""
    if len(parts) == 1:
        return parts[0]

    def cat(name: str) -> Tensor:
        return torch.cat([getattr(p, name) for p in parts])

    def operand(name: str) -> Operand:
        own = [getattr(p, name) for p in parts]
        sources = [o.source for o in own]
        opaque = next((o.opaque for o in own if o.opaque), None)
        value = torch.cat([o.value for o in own])
        if any(s is None for s in sources) or len({s.shape[:2] for s in sources}) > 1:
            return Operand(value, None, None, opaque)
        return Operand(value, torch.cat(sources, -1), None, opaque)

    return Arranged(
        operand("q"), operand("k"), operand("v"), cat("raw"), cat("logits"), cat("additive"),
        cat("weights"), cat("context"), None if all(p.native is None for p in parts) else _no_native(),
    )  # fmt: skip


def _no_native() -> Native | None:
    raise NotArrangedError("sinks in a loop over heads")


def _output_side(
    bench: Bench, site: Site, path: OutputPath, replay: Replay
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return merged (B, T, C), the output projection (D, C), its bias (D,), and its output (B, T, D)."""
    merged_value = replay.base(path.merged)
    if not isinstance(merged_value, Tensor) or not path.features:
        return None, None, None, None
    outer = [a for a in range(merged_value.dim()) if a not in path.features]
    if _folded(bench, site, path, outer):
        return None, None, None, None
    rows = _row_axes(bench, site, path, outer)
    samples = [a for a in outer if a not in rows]

    def ordered(value: Tensor, features: tuple[int, ...]) -> Tensor:
        sizes = [math.prod(value.shape[a] for a in axes) for axes in (samples, rows, features)]
        return value.permute(*samples, *rows, *features).reshape(sizes)

    merged = ordered(merged_value, path.features)
    if path.map is None:
        return merged, None, None, None
    weight, bias = _weight(bench, path, replay)
    output = replay.base(path.map.call)
    channel = path.map.channel_axes
    if weight is None or output.dim() != merged_value.dim() or channel != path.features:
        return merged, None, None, None
    return merged, weight, bias, ordered(output, channel)


def _folded(bench: Bench, site: Site, path: OutputPath, outer: list[int]) -> bool:
    """Return whether one axis holds positions and samples together, as (T*B, C) does."""
    member = site.all[0]
    traced = trace(bench.replay, member.context, path.merged)
    labels = member.value.out_labels
    free = member.value.free(member.weights_left)
    rows = [i for i, x in enumerate(labels) if x is not None and x in free]
    samples = [a for a in sample_axes(bench, member) if traced.shape[a] > 1]
    return (
        any(
            any(varies_along(traced.index[r], a) for r in rows)
            and any(varies_along(traced.index[s], a) for s in samples)
            for a in outer
        )
        and len(outer) == 1
    )


def _row_axes(bench: Bench, site: Site, path: OutputPath, outer: list[int]) -> list[int]:
    traced = trace(bench.replay, site.all[0].context, path.merged)
    labels = site.all[0].value.out_labels
    free = site.all[0].value.free(site.all[0].weights_left)
    context_rows = [i for i, x in enumerate(labels) if x is not None and x in free]
    rows = [a for a in outer if any(varies_along(traced.index[r], a) for r in context_rows)]
    if not rows or len(rows) == len(outer):
        return outer[1:] if len(outer) > 1 else outer
    return rows


def _weight(bench: Bench, path: OutputPath, replay: Replay) -> tuple[Tensor | None, Tensor | None]:
    assert path.map is not None
    node = path.map.call
    found = bench.finder.sources.learned_map(node)
    if found is None:
        return None, None
    weight = replay.base(found[1])
    name = op(node)
    bias_node = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    bias = replay.base(bias_node) if hasattr(bias_node, "op") else None  # type: ignore[arg-type]
    if name == "linear":
        return weight, bias
    if name.startswith("conv") and math.prod(weight.shape[2:]) == 1:
        return weight.reshape(weight.shape[0], -1), bias
    if name in ("matmul", "mm", "bmm") and weight.dim() == 2:
        return weight.T, None
    if name == "addmm" and weight.dim() == 2:
        return weight.T, replay.base(node.args[0])  # type: ignore[arg-type]
    return None, None


def _with_due(bench: Bench, site: Site, v: Operand, replay: Replay, facts: SiteFacts) -> Operand:
    """Tell the oracle which projection V should have come through, where one lies idle."""
    roles = facts.roles
    if not isinstance(roles, Known) or site.members or site.v.source is None or v.source is None:
        return v
    if roles.value.value_is == "v" and not any("v" in pair for pair in roles.value.same):
        return v
    reads = site.v.source.reads
    module = bench.recording.module
    if reads is None or module is None or not roles.value.unused:
        return v
    own = dict(module.named_parameters())
    idle = [n for n in roles.value.unused if n in own]
    if not idle:
        return v
    name = next((n for n in idle if "v" in n.lower().replace("weight", "")), idle[-1])
    x = replay.base(reads)
    weight = own[name].detach().to(x)
    bias = own.get(name.removesuffix("weight") + "bias")
    if (
        weight.dim() != 2
        or x.shape[-1] != weight.shape[1]
        or site.v.source.node.meta.get("op") != "linear"
    ):
        return v
    made = x @ weight.T + (bias.detach().to(x) if bias is not None else 0)
    return replace(v, due=source_tensor(bench, site.v, made))
