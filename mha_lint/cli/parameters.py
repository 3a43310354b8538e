"""The kinds of values that options take; each says in its error what it wants."""

from __future__ import annotations

import re

import click

from mha_lint.model.contract import EXPECTATIONS, unknown_expectation
from mha_lint.model.finding import Severity


def codes(text: str) -> tuple[str, ...]:
    """Return the comma-separated rule codes, prefixes or ALL of `text`, in capitals."""
    found = tuple(code.strip().upper() for code in text.split(",") if code.strip())
    if not found:
        raise click.BadParameter("names no rule; give codes as MHA201,MHA3 or ALL")
    return found


def code_level(text: str) -> tuple[str, Severity]:
    """Return the rule code (or prefix) and severity of ``MHA201=note``."""
    code, _, level = text.partition("=")
    levels = [s.value for s in Severity]
    if not code.strip() or level.strip() not in levels:
        form = f"CODE=LEVEL with LEVEL one of {', '.join(levels)}"
        raise click.BadParameter(f"{text!r} is not of the form {form}")
    return code.strip().upper(), Severity(level.strip())


def pattern_codes(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the glob pattern and the codes of ``tests/*.py:MHA201,MHA3``."""
    pattern, _, listed = text.rpartition(":")
    if not pattern or not listed.strip(" ,"):
        raise click.BadParameter(f"{text!r} is not of the form PATTERN:CODE,CODE")
    return pattern, codes(listed)


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_SHARD = re.compile(r"\d{1,9}/\d{1,9}", re.ASCII)


def size(text: str) -> int:
    """Return the bytes of ``8G``, ``500M`` or a plain number."""
    found = _SIZE.fullmatch(text.strip())
    number = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) if found else 0
    if number <= 0:
        raise click.BadParameter(f"{text!r} is no size; give one as 8G or 500M")
    return number


def shard(text: str) -> tuple[int, int]:
    """Return (I, N) of ``I/N``."""
    index, _, count = text.partition("/")
    if not (_SHARD.fullmatch(text) and 1 <= int(index) <= int(count)):
        raise click.BadParameter(f"{text!r} is not of the form I/N, as 2/4 for the second of four")
    return int(index), int(count)


def expectation(text: str) -> str:
    """Return `text` if it is a word of the contract."""
    if text not in EXPECTATIONS:
        raise click.BadParameter(unknown_expectation(text))
    return text
