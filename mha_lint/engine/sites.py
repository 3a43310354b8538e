"""The rows of the table of sites, the pipeline in words, and what a site costs."""

from __future__ import annotations

from mha_lint.engine.crosscheck import CheckedSite
from mha_lint.facts.subject import Measurement
from mha_lint.model.facts import Dims, Known, NotApplicable, SiteFacts
from mha_lint.model.finding import Finding
from mha_lint.model.report import Cost, PipelineStep, SiteReport
from mha_lint.sites.site import Site

FAULTS = {
    "split": ("MHA104", "MHA602", "MHA601"),
    "scores": ("MHA201", "MHA202", "MHA402"),
    "softmax": ("MHA203", "MHA204", "MHA205", "MHA206", "MHA401"),
    "context": ("MHA105", "MHA106"),
    "output": ("MHA101",),
}


def site_reports(
    measured: Measurement, findings: tuple[Finding, ...], checked: list[CheckedSite]
) -> tuple[SiteReport, ...]:
    """Return one row per site, in recorded order."""
    del checked
    return tuple(
        _row(measured, site, facts, {f.code for f in findings if f.site == facts.info.id})
        for site, facts in zip(measured.bench.sites, measured.facts.sites, strict=True)
    )


def _row(measured: Measurement, site: Site, facts: SiteFacts, codes: set[str]) -> SiteReport:
    dims = facts.dims.value if isinstance(facts.dims, Known) else None
    scale = facts.scale.value if isinstance(facts.scale, Known) else None
    normaliser = facts.normaliser.value if isinstance(facts.normaliser, Known) else None
    output = facts.output_projection
    span = facts.info.at("site")
    axis: str | None = None
    if normaliser is not None:
        axis = "+".join(normaliser.axes) if normaliser.axes else normaliser.function
    return SiteReport(
        id=facts.info.id,
        module=facts.info.module,
        line=span.line if span is not None else 0,
        kind=facts.info.kind.value,
        d_model=dims.d_model if dims else None,
        num_heads=dims.num_heads if dims else None,
        num_kv_heads=dims.num_kv_heads if dims else None,
        head_dim=dims.head_dim if dims else None,
        v_dim=dims.v_dim if dims else None,
        scale_value=float(f"{scale.value:.9g}") if scale else None,
        scale_named=_scale_name(facts),
        softmax_axis=axis,
        output_projection=output.value.present if isinstance(output, Known) else None,
        mask=facts.info.mask,
        repeated=facts.info.repeated,
        pipeline=_pipeline(measured, site, facts, codes),
        cost=_cost(dims, facts) if dims is not None else None,
    )


def _scale_name(facts: SiteFacts) -> str | None:
    if not isinstance(facts.scale, Known):
        return None
    scale = facts.scale.value
    if scale.normalised:
        return f"normalised {' and '.join(scale.normalised_operands) or 'q and k'}"
    if scale.learned:
        return "learned"
    return scale.named or scale.stated


def _pipeline(
    measured: Measurement, site: Site, facts: SiteFacts, codes: set[str]
) -> tuple[PipelineStep, ...]:
    """Return x -> q k v -> scores -> softmax -> context -> W_O with shapes, faulty steps marked."""
    recording = measured.bench.recording
    first = site.all[0]

    def sized(text: str, node: object) -> str:
        value = recording.values.get(node)  # type: ignore[call-overload]
        return f"{text} {tuple(value.shape)}" if hasattr(value, "shape") else text

    def bad(name: str) -> bool:
        return bool(codes & set(FAULTS[name]))

    steps: list[PipelineStep] = []
    if first.q is not None and first.q.source is not None:
        reads = first.q.source.reads if first.q.source.reads is not None else first.q.source.node
        steps.append(PipelineStep(sized("x", reads)))
        steps.append(PipelineStep(sized("q", first.q.node), bad("split")))
    many = f" x {len(site.members)}" if site.members else ""
    steps.append(PipelineStep(sized("scores", first.scores) + many, bad("scores")))
    steps.append(PipelineStep(_normaliser_words(facts), bad("softmax")))
    steps.append(PipelineStep(sized("context", first.context), bad("context")))
    output = facts.output_projection
    if isinstance(output, Known):
        path = measured.paths[measured.bench.sites.index(site)]
        where = f" in {output.value.enclosing}" if output.value.enclosing else ""
        text = sized("W_O", path.map.call) if path.map is not None else f"W_O{where}"
        steps.append(PipelineStep(text if output.value.present else "no W_O", bad("output")))
    return tuple(steps)


def _normaliser_words(facts: SiteFacts) -> str:
    if isinstance(facts.normaliser, NotApplicable):
        return "no softmax over keys"
    if not isinstance(facts.normaliser, Known):
        return "weights"
    found = facts.normaliser.value
    if found.function == "none":
        return "no softmax"
    return f"{found.function} over {' and '.join(found.axes)}" if found.axes else found.function


def _cost(dims: Dims, facts: SiteFacts) -> Cost:
    """Count weights, and two FLOPs for each multiply-add; biases are left out of both."""
    del facts
    tokens_q, tokens_k = dims.batch * dims.t_q, dims.batch * dims.t_k
    inner_q, inner_k = dims.num_heads * dims.head_dim, dims.num_kv_heads * dims.head_dim
    inner_v, inner_o = dims.num_kv_heads * dims.v_dim, dims.num_heads * dims.v_dim
    width = dims.d_model
    parameters = width * (inner_q + inner_k + inner_v) + inner_o * width
    projections = 2 * width * (tokens_q * inner_q + tokens_k * (inner_k + inner_v))
    pairs = dims.batch * dims.t_q * dims.t_k
    scores = 2 * pairs * dims.num_heads * dims.head_dim
    context = 2 * pairs * dims.num_heads * dims.v_dim
    output = 2 * tokens_q * inner_o * width
    single = (
        2 * width * width * (tokens_q + 2 * tokens_k)
        + 4 * pairs * width
        + 2 * tokens_q * width * width
    )
    return Cost(parameters, projections, scores, context, output, single)
