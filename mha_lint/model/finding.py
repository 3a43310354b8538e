"""What a rule says, and what the run makes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mha_lint.model.source import Span


class Severity(enum.StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Return 2 for an error, 1 for a warning, 0 for a note."""
        return {"error": 2, "warning": 1, "note": 0}[self.value]


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that belongs to a finding, with a few words about it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule yields.

    ``message``: what is wrong in this code, with its own numbers and names, one sentence.
    ``at``: where the user must look. ``here``: a few words for under the marked source.
    ``why``: why it matters. ``help``: how to put it right. ``evidence``: sentences a reader can
    repeat. ``severity``: overrides the rule's (an inferred intention is a warning and says so).
    ``confirm``: names the deviation of the oracle that would prove this ("scale",
    "softmax-axis", "split:q", "merge", "roles", "output-projection", ...), or "identity: ..." /
    "witness: ..." with the proof already in words.
    """

    message: str
    at: Span | None = None
    here: str = ""
    why: str = ""
    help: str = ""
    evidence: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    severity: Severity | None = None
    confirm: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation with its rule, severity and place: what every reporter prints."""

    code: str
    rule: str
    severity: Severity
    message: str
    span: Span
    site: str | None = None
    branch: str | None = None
    here: str = ""
    why: str = ""
    help: str = ""
    evidence: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    confirmed_by: str | None = None
    fingerprint: str = ""
    suppressed: bool = False

    @property
    def cell(self) -> int | None:
        """Return the cell of a notebook that the lines are counted in, None outside notebooks."""
        return self.span.cell or None


@dataclass(frozen=True, slots=True)
class Undecided:
    """A rule that could not judge a site (or, ``site`` None, the subject), and why."""

    code: str
    site: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Crash:
    """A bug of ours (a rule that raised, a contradiction): never a clean site."""

    where: str
    target: str
    error: str
    traceback: str = ""
