"""The ``inspect`` command's tables: every attention site, and what it costs.

The second table answers whether eight heads cost eight times one: each head is ``d_model / h``
wide, so the totals stand beside those of one full-width head on the same input.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mha_lint.model.report import Cost, RunReport, SiteReport, Status, TargetReport
from mha_lint.report.json_format import dumps, to_json
from mha_lint.report.lines import line, paragraph, to_string
from mha_lint.report.view import View

_SITE_COLUMNS = (
    "site", "module", "line", "kind", "d_model", "h", "h_kv", "d_k", "d_v", "scale", "softmax over",
    "mask", "W_O",
)  # fmt: skip
_COST_COLUMNS = (
    "site", "parameters", "projections", "scores", "context", "W_O", "FLOPs", "one head", "ratio",
)  # fmt: skip


def render(report: RunReport, view: View) -> str:
    """Return the tables of all targets."""
    lines: list[Text] = []
    for target in report.targets:
        if lines:
            lines.append(Text(""))
        lines.append(line((target.target, "bold")))
        lines += _target(target, view)
    for note in report.notes:
        lines += paragraph(f"note: {note}", view, indent=0, hang=0)
    for crash in report.crashes:
        lines += paragraph(f"internal error: {crash.where}: {crash.error}", view, indent=0, hang=0)
    return to_string(lines, view)


def render_json(report: RunReport, view: View) -> str:
    """Return the ``json`` format with a ``cost`` at each site."""
    return dumps(to_json(report, costs=True))


def _target(target: TargetReport, view: View) -> list[Text]:
    if target.status is Status.FAILED:
        out = paragraph(target.reason or "not checked", view, label="why", indent=2)
        return out + (paragraph(target.hint, view, label="fix", indent=2) if target.hint else [])
    if not target.sites:
        return paragraph(target.reason or "no attention", view, indent=2, hang=0)
    out = _table(_SITE_COLUMNS, [_site_row(s) for s in target.sites], left={0, 1, 3, 9, 10, 11, 12})
    costs = [_cost_row(s, s.cost) for s in target.sites if s.cost is not None]
    if costs:
        out += [Text(""), *_table(_COST_COLUMNS, costs, left={0})]
        legend = (
            "parameters: of the projections, without biases; FLOPs of one call, two for each "
            "multiply-add; one head: one head of d_k = d_model on "
            "the same input; ratio: FLOPs beside it"
        )
        out += paragraph(legend, view, indent=2, hang=0, style="dim")
    notes = [n for n in target.notes if view.verbose or "(inferred" in n]
    return out + [t for n in notes for t in paragraph(n, view, indent=2, hang=0, style="dim")]


def _site_row(site: SiteReport) -> list[str]:
    times = f" x{site.repeated}" if site.repeated > 1 else ""
    scale = "-" if site.scale_value is None else f"{site.scale_value:.4g}"
    named = f" = {site.scale_named}" if site.scale_named and site.scale_named != scale else ""
    projected = {True: "yes", False: "no", None: "-"}[site.output_projection]
    numbers = (site.d_model, site.num_heads, site.num_kv_heads, site.head_dim, site.v_dim)
    sizes = ["-" if n is None else str(n) for n in numbers]
    return [
        site.id + times, site.module or ".", _line(site), site.kind, *sizes, scale + named,
        site.softmax_axis or "-", site.mask, projected,
    ]  # fmt: skip


def _line(site: SiteReport) -> str:
    return f"cell {site.cell}:{site.line}" if site.cell else str(site.line)


def _cost_row(site: SiteReport, cost: Cost) -> list[str]:
    ratio = f"{cost.total / cost.single_head_total:.2f}" if cost.single_head_total else "-"
    numbers = (
        cost.parameters, cost.projections, cost.scores, cost.context, cost.output, cost.total,
        cost.single_head_total,
    )  # fmt: skip
    return [site.id, *(f"{n:,}" for n in numbers), ratio]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: set[int]) -> list[Text]:
    """Return a table of aligned columns; those in `left` are flush left, the others right."""
    widths = [max(len(columns[i]), *(len(row[i]) for row in rows)) for i in range(len(columns))]

    def aligned(row: Sequence[str]) -> str:
        cells = [
            c.ljust(w) if i in left else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  " + "  ".join(cells)

    return [line((aligned(columns), "dim")), *(line(aligned(row)) for row in rows)]
