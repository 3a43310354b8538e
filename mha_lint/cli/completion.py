"""What the shell completes: files and the classes in them, scripts, rule codes, words of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def targets(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a path, and after ``file.py::`` the classes and functions that can hold attention."""
    from click.shell_completion import CompletionItem

    place, separator, begun = incomplete.partition("::")
    if not separator:
        return [CompletionItem(incomplete, type="file")]
    from mha_lint.targets.scan import scan_file
    from mha_lint.targets.source import SourceError

    try:
        names = [candidate.qualname for candidate in scan_file(str(Path(place)))]
    except SourceError:
        return []
    return [CompletionItem(f"{place}::{name}") for name in names if name.startswith(begun)]


def programs(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the path of a script or of one of its arguments."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def rule_codes(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last of several codes, each with the name of its rule."""
    from click.shell_completion import CompletionItem

    from mha_lint.rulebook.pack import builtin_pack, load_pack

    before, comma, last = incomplete.rpartition(",")
    rules = load_pack(builtin_pack())
    return [
        CompletionItem(f"{before}{comma}{rule.code}", help=rule.name)
        for rule in rules
        if rule.code.startswith(last.upper())
    ]


def expectations(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a word of the contract."""
    from click.shell_completion import CompletionItem

    from mha_lint.model.contract import EXPECTATIONS

    return [CompletionItem(word) for word in EXPECTATIONS if word.startswith(incomplete)]
