"""Check one call from Python: in a notebook, a script, a test."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_lint.model.finding import Finding, Severity, Undecided
from mha_lint.model.report import RunReport, SiteReport, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.report.json_format import render as render_json
from mha_lint.report.text import render as render_text
from mha_lint.report.view import View

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Report:
    """What a check of one call has to say; ``print(report)`` shows it as the command line does.

    It is true where nothing was found and nothing was left unchecked.
    """

    run: RunReport
    cwd: str

    @property
    def target(self) -> TargetReport:
        """Return the report on the call."""
        return self.run.targets[0]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings that are not suppressed, in the order of the code."""
        return tuple(self.run.findings())

    @property
    def sites(self) -> tuple[SiteReport, ...]:
        """Return the attention that was found, with its sizes."""
        return self.target.sites

    @property
    def undecided(self) -> tuple[Undecided, ...]:
        """Return the rules that could not be decided, and why."""
        return self.target.undecided

    @property
    def checked(self) -> bool:
        """Return whether the call was recorded and judged at all."""
        judged = self.target.status in (Status.CHECKED, Status.UNDECIDED)
        return judged and not self.run.crashes

    def above(self, level: Severity | str = Severity.WARNING) -> tuple[Finding, ...]:
        """Return the findings at or above `level`: "note", "warning" or "error"."""
        rank = Severity(level).rank
        return tuple(f for f in self.findings if f.severity.rank >= rank)

    def to_json(self) -> str:
        """Return the report as ``mha-lint check --format json`` prints it."""
        return render_json(self.run, View(self.cwd))

    def __bool__(self) -> bool:
        """Return whether the call was checked and nothing was found."""
        return self.checked and not self.above()

    def __str__(self) -> str:
        """Return the report as text."""
        return render_text(self.run, View(self.cwd))


def check(
    module: nn.Module | Callable[..., Any],
    *args: Any,
    expect: Sequence[str] = (),
    select: Sequence[str] = ("ALL",),
    ignore: Sequence[str] = (),
    **kwargs: Any,
) -> Report:
    """Judge the attention in ``module(*args, **kwargs)``.

    The call is made on copies, in eval mode, with the module's own weights and with random ones;
    `module` and the arguments stay as they are. `module` may be a function. `expect` is what it is
    meant to be ("causal", "mask=keep", ...); `select` and `ignore` hold rule codes or prefixes. These
    three names are taken: pass arguments of the same name by position, or by `functools.partial`.

    Raises:
        UsageError: `select` or `ignore` names no rule, or `expect` no word of a contract.
    """
    from mha_lint.engine import check_calls
    from mha_lint.targets.live import take

    cwd = str(Path.cwd())
    settings = dataclasses.replace(Settings(cwd), select=tuple(select), ignore=tuple(ignore))
    snapshot = take(module, args, kwargs)
    return Report(check_calls([snapshot], settings, expect=tuple(expect)), cwd)
