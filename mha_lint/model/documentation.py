"""What a rule's docstring says, taken apart: `explain` and the lists of rules are made of it."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.finding import Severity


@dataclass(frozen=True, slots=True)
class RuleDoc:
    """One rule as a reader meets it.

    ``summary``: the docstring's first line, what is wrong. ``bad`` and ``good``: complete small
    modules. ``references``: one entry a line. ``scope``: what the rule is run on, "site" (every
    attention site), "subject" (once) or "comment" (every suppression comment).
    """

    code: str
    name: str
    family: str
    severity: Severity
    since: str
    summary: str
    what: str = ""
    why: str = ""
    bad: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    scope: str = "site"
