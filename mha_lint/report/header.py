"""What stands above a target's findings: its name, its sites and the pipeline of each."""

from __future__ import annotations

from rich.text import Text

from mha_lint.model.finding import Finding
from mha_lint.model.report import CrossCheck, SiteReport, TargetReport, in_words
from mha_lint.report.lines import line, paragraph
from mha_lint.report.summary import visible
from mha_lint.report.view import View

_KINDS = {
    "self": "self-attention",
    "cross": "cross-attention",
    "pooling": "attention pooling",
    "linear": "linear attention",
    "channel": "channel attention",
}
_MANY = 4
"""With more sites than this, those without findings are only counted (unless verbose)."""


def target_header(target: TargetReport, view: View) -> list[Text]:
    """Return the header of a judged target."""
    differs = any(c.verdict == "mismatch" for c in target.crosscheck)
    unclear = differs or bool(target.undecided)
    ok = Text("") if visible(target) or unclear else line(("ok", "green"))
    elsewhere = [f for f in target.elsewhere if not f.suppressed]
    if elsewhere and not visible(target):
        ok = line((_elsewhere(elsewhere, target.path), "yellow"))
    if len(target.sites) == 1:
        site = target.sites[0]
        out = _titled(line((target.target, "bold")), describe(site), ok, view)
        return out + _pipeline(site, view) + _crosscheck(target, site, view) + _notes(target, view)
    out = _titled(line((target.target, "bold")), f"{len(target.sites)} attention sites", ok, view)
    flagged = {finding.site for finding in visible(target)}
    flagged |= {check.site for check in target.crosscheck if check.verdict == "mismatch"}
    shown = [s for s in target.sites if s.id in flagged or view.verbose]
    if len(target.sites) <= _MANY:
        shown = list(target.sites)
    for site in shown:
        owner = f"{site.module}, {site.where}" if site.module else site.where
        title = line("  ", (site.id, "bold"), f" ({owner})")
        out += _titled(title, describe(site), Text(""), view)
        out += _pipeline(site, view) + _crosscheck(target, site, view, indent=4)
    if len(shown) < len(target.sites):
        rest = len(target.sites) - len(shown)
        out.append(line((f"  {rest} more without findings (-v shows them)", "dim")))
    return out + _notes(target, view)


def describe(site: SiteReport) -> str:
    """Return "self-attention, d_model 64, 8 heads of 8"."""
    parts = [_KINDS.get(site.kind, site.kind)]
    if site.d_model is not None:
        parts.append(f"d_model {site.d_model}")
    if site.num_heads is not None:
        width = "" if site.head_dim is None else f" of {site.head_dim}"
        parts.append(f"{site.num_heads} head{'' if site.num_heads == 1 else 's'}{width}")
    if site.num_kv_heads is not None and site.num_kv_heads != site.num_heads:
        parts.append(f"{site.num_kv_heads} key/value head{'' if site.num_kv_heads == 1 else 's'}")
    if site.v_dim is not None and site.v_dim != site.head_dim:
        parts.append(f"values of {site.v_dim}")
    if site.mask != "none":
        parts.append(f"mask {site.mask}")
    if site.repeated > 1:
        parts.append(f"{site.repeated} times")
    return ", ".join(parts)


def _elsewhere(findings: list[Finding], path: str) -> str:
    """Return "see MHA204 at line 24": what holds here too, and is told with another target."""
    places = [
        (f.code, in_words(f.span.line, f.cell) if f.span.path == path else f.span) for f in findings
    ]
    return f"see {', '.join(f'{code} at {place}' for code, place in dict.fromkeys(places))}"


def _titled(title: Text, description: str, ok: Text, view: View) -> list[Text]:
    """Return `title` and `description` on one line, or the description below if it is too long."""
    mark = Text.assemble("   ", ok) if ok.plain else Text("")
    row = Text.assemble(title, "   ", description, mark)
    if row.cell_len <= view.width:
        return [row]
    return [Text.assemble(title, mark), *paragraph(description, view, indent=4, hang=0)]


def _pipeline(site: SiteReport, view: View) -> list[Text]:
    """Return the steps of `site` joined by arrows, wrapped between steps."""
    rows: list[Text] = []
    row = Text("  ")
    for index, step in enumerate(site.pipeline):
        arrow = " -> " if index else ""
        piece = Text.assemble(
            arrow, (step.text + (" ✗" if step.bad else ""), "red" if step.bad else "")
        )
        if row.cell_len + piece.cell_len > view.width and row.plain.strip():
            rows.append(row)
            row = Text("    ")
            piece = Text.assemble(arrow.lstrip(), piece[len(arrow) :])
        row.append_text(piece)
    return [*rows, row] if row.plain.strip() else rows


def _crosscheck(target: TargetReport, site: SiteReport, view: View, indent: int = 2) -> list[Text]:
    told = any(finding.site == site.id for finding in visible(target))
    shown = {"match"} if told else {"match", "mismatch", "skipped"}  # no finding tells of these
    return [
        text
        for check in target.crosscheck
        if check.site == site.id
        and (check.verdict in shown or view.verbose or not _is_exact(check))
        for text in paragraph(
            crosscheck_sentence(check, view.verbose, beside_findings=bool(visible(target))),
            view,
            indent=indent,
            hang=0,
            style="dim",
        )
    ]


def crosscheck_sentence(
    check: CrossCheck, verbose: bool = False, *, beside_findings: bool = False
) -> str:
    """Return what the comparison with the reference says, in one sentence.

    `beside_findings`: what is found is no contradiction, as the reference takes over masks and the like.
    """
    where = f"{check.dtype}, {check.device}"
    why = f"; {check.explanation}" if check.explanation else ""
    if check.verdict == "match":
        within = "" if _is_exact(check) else f" to within the rounding of {check.dtype}"
        told = why if verbose else ""
        taken = ", with masks and positions as this code has them" if beside_findings else ""
        sentence = f"cross-check: equals the reference attention{within}{_difference(check)}{taken}"
        return f"{sentence}, {where}{told}"
    if check.verdict == "mismatch":
        at = f", first at the {check.departs_at}" if check.departs_at else ""
        error = "" if check.max_abs_error is None else f" by {check.max_abs_error:.0e}"
        if not _is_exact(check):
            error = _difference(check)
        return f"cross-check: differs from the reference attention{error}{at}, {where}{why}"
    return f"cross-check: skipped{f', {check.explanation}' if check.explanation else ''}"


def _is_exact(check: CrossCheck) -> bool:
    """Return whether `check` was made in float64, where rounding hides nothing."""
    return check.dtype == "float64"


def _difference(check: CrossCheck) -> str:
    if check.max_abs_error is None:
        return ""
    if _is_exact(check):
        return f" (max difference {check.max_abs_error:.0e})"
    most = "" if check.tolerance is None else f", at most {check.tolerance:.0e} is rounding"
    return f" (rms difference {check.max_abs_error:.0e}{most})"


def _notes(target: TargetReport, view: View) -> list[Text]:
    """Return the notes: always those on what we made up, the others only when asked."""
    notes = [note for note in target.notes if view.verbose or "(inferred" in note]
    if view.verbose:
        notes += [f"expects {e.key} = {str(e.value).lower()} ({e.source})" for e in target.contract]
        notes.append(f"took {target.seconds:.2f} s")
    return [t for note in notes for t in paragraph(note, view, indent=2, hang=0, style="dim")]
