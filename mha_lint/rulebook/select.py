"""Which rules run, which of them count in which file, and how severe they are.

A selector is a rule code, a prefix of codes ("MHA2") or "ALL". As in ruff, the more specific
selector wins, and of two equally specific ones the ignoring one: ``select = ["MHA2"]`` with
``ignore = ["MHA"]`` still runs MHA2, ``select = ["ALL"]`` with ``ignore = ["MHA108"]`` all but one.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Iterable, Sequence

from mha_lint.model.finding import Severity
from mha_lint.model.settings import PerFileIgnore, Settings, UsageError
from mha_lint.rulebook.pack import LoadedRule


class UnknownRuleError(UsageError):
    """A selector that no rule answers to; the text names it and the nearest codes."""


def select_rules(rules: Sequence[LoadedRule], settings: Settings) -> list[LoadedRule]:
    """Return those of `rules` that `settings` asks for.

    Raises:
        UnknownRuleError: a selector in any of the settings matches no rule.
    """
    codes = [r.code for r in rules]
    check_selectors(settings.select, codes, "select")
    check_selectors(settings.extend_select, codes, "extend-select")
    check_selectors(settings.ignore, codes, "ignore")
    check_selectors([code for code, _ in settings.severity], codes, "severity")
    for entry in settings.per_file_ignores:
        check_selectors(entry.codes, codes, f"per-file-ignores of {entry.pattern}")
    wanted = (*settings.select, *settings.extend_select)
    return [r for r in rules if _strength(wanted, r.code) > _strength(settings.ignore, r.code)]


def check_selectors(selectors: Iterable[str], codes: Sequence[str], option: str) -> None:
    """Refuse a selector that matches none of `codes`.

    Raises:
        UnknownRuleError: names the selector, the `option` that holds it and the nearest codes.
    """
    for selector in selectors:
        if not any(matches(selector, code) for code in codes):
            raise UnknownRuleError(f"{option}: no rule {selector!r}; {nearest(selector, codes)}")


def nearest(selector: str, names: Sequence[str]) -> str:
    """Return a hint at those of `names` that `selector` may have meant."""
    if selector.upper().startswith("MHA0"):
        return "MHA001 stands for what was not checked: that is always told, and no rule to choose"
    family = [name for name in names if name.startswith(selector[:4].upper())]
    if len(selector) >= 4 and family:
        found = f"there are {', '.join(family)}"
        return found if len(family) > 1 else f"did you mean {family[0]}?"
    near = difflib.get_close_matches(selector, names, n=2, cutoff=0.7)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "mha-lint rules lists them all"


def matches(selector: str, code: str) -> bool:
    """Tell whether `selector` means the rule `code`."""
    return selector == "ALL" or (selector != "" and code.startswith(selector))


def ignored_in(path: str, code: str, entries: Iterable[PerFileIgnore]) -> bool:
    """Tell whether a finding of `code` in the absolute `path` is one that the user ignores.

    A pattern is tried on the file's name, on its path below ``root`` and on the absolute path.
    """
    return any(
        any(matches(selector, code) for selector in entry.codes)
        and (
            fnmatch.fnmatch(os.path.basename(path), entry.pattern)  # noqa: PTH119 - strings only
            or fnmatch.fnmatch(path, os.path.join(entry.root, entry.pattern))  # noqa: PTH118
        )
        for entry in entries
    )


def severity_of(code: str, default: Severity, settings: Settings) -> Severity:
    """Return the user's level for `code`, by the most specific selector, else `default`."""
    chosen, strength = default, 0
    for selector, level in settings.severity:
        if _strength((selector,), code) >= max(strength, 1):
            chosen, strength = level, _strength((selector,), code)
    return chosen


def _strength(selectors: Iterable[str], code: str) -> int:
    """Return how specific the most specific matching selector is: 0 none, 1 ALL, else more."""
    return max((1 if s == "ALL" else 1 + len(s) for s in selectors if matches(s, code)), default=0)
