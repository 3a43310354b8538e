"""The result of a run: the only input of the reporters and of the exit code."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mha_lint.model.contract import ContractEntry
from mha_lint.model.finding import Crash, Finding, Severity, Undecided
from mha_lint.model.target import ShapeProblem


class Status(enum.StrEnum):
    """How far a target came."""

    CHECKED = "checked"
    UNDECIDED = "undecided"
    FAILED = "failed"
    NO_ATTENTION = "no-attention"


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Why a target could not be judged, and what the user can pass or change.

    ``detail``: the traceback or the tail of an error, shown with -v only. ``optional``: nothing
    was lost (a folder's file without attention). ``target``: the target it is about, as the user
    would name it. ``problem``: set when the error could be explained (MHA102, MHA103, MHA305).
    """

    reason: str
    hint: str = ""
    detail: str = ""
    target: str = ""
    problem: ShapeProblem | None = None


def in_words(line: int, cell: int | None) -> str:
    """Return "line 24", in a notebook "cell 3, line 24"."""
    return f"cell {cell}, line {line}" if cell else f"line {line}"


@dataclass(frozen=True, slots=True)
class SiteReport:
    """One row of the table of sites (None: unknown or not applicable)."""

    id: str
    module: str
    line: int
    kind: str
    d_model: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    v_dim: int | None = None
    scale_value: float | None = None
    scale_named: str | None = None
    softmax_axis: str | None = None
    output_projection: bool | None = None
    mask: str = "none"
    repeated: int = 1
    pipeline: tuple[PipelineStep, ...] = ()
    cost: Cost | None = None
    cell: int | None = None
    """The cell of a notebook that ``line`` is counted in."""

    @property
    def where(self) -> str:
        """Return "line 24", in a notebook "cell 3, line 24"."""
        return in_words(self.line, self.cell)


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step of a site for the header line: ``text`` "scores (2, 8, 10, 10)"; ``bad``: faulty."""

    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters and multiply-add FLOPs (2 per multiply-add) of one call, and those of one
    full-width head (h = 1, d_k = d_model) on the same input."""

    parameters: int
    projections: int
    scores: int
    context: int
    output: int
    single_head_total: int

    @property
    def total(self) -> int:
        """Return all FLOPs of the site."""
        return self.projections + self.scores + self.context + self.output


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """The numeric comparison of one site with the reference attention.

    ``verdict``: "match", "mismatch" or "skipped". ``departs_at``: first stage that differs, among
    "operands", "scores", "weights", "context", "output". ``explanation``: the deviations that
    reproduce the site, or why it was skipped. ``max_abs_error``: the largest difference in float64;
    in any other ``dtype`` the rms difference between what the site gives there and the reference,
    the median over the draws, and ``tolerance`` is twice that of a straightforward implementation.
    """

    site: str
    verdict: str
    departs_at: str | None = None
    device: str = "cpu"
    dtype: str = "float64"
    max_abs_error: float | None = None
    tolerance: float | None = None
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class TargetReport:
    """All that was found out about one target."""

    target: str
    path: str
    class_name: str | None
    line: int | None
    status: Status
    reason: str | None = None
    hint: str | None = None
    detail: str = ""
    seconds: float = 0.0
    sites: tuple[SiteReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    contract: tuple[ContractEntry, ...] = ()
    crosscheck: tuple[CrossCheck, ...] = ()
    notes: tuple[str, ...] = ()
    """What the user should know: how it was built and called, stubs, skipped statements."""
    elsewhere: tuple[Finding, ...] = ()
    """Findings that hold here too and are reported once, with another target."""
    cell: int | None = None
    """The cell of a notebook that ``line`` is counted in."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """All that one run has to say."""

    version: str
    torch: str | None
    targets: tuple[TargetReport, ...] = ()
    crashes: tuple[Crash, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False
    """Whether the user stopped the run before its end."""
    shard: tuple[int, int] | None = None
    """(I, N): this is the I-th of N parts of a run."""

    def findings(self) -> list[Finding]:
        """Return the findings of all targets that are not suppressed, in order."""
        return [f for t in self.targets for f in t.findings if not f.suppressed]

    def exit_code(self, fail_on: Severity, *, exit_zero: bool = False, strict: bool = False) -> int:
        """Return 0, 1 or 2 as the interface defines them.

        2: something was not checked (a failed target, a crash of ours, with `strict` also an
        undecided rule), whatever else was found; 1: a finding at or above `fail_on`; else 0. 130:
        the user stopped the run.
        """
        if self.interrupted:
            return 130
        failed = any(t.status is Status.FAILED for t in self.targets)
        undecided = any(t.undecided for t in self.targets)
        if failed or self.crashes or (strict and undecided):
            return 2
        found = any(f.severity.rank >= fail_on.rank for f in self.findings())
        return 1 if found and not exit_zero else 0
