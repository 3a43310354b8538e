"""What the user named."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One target: a file with an optional class or function, or an importable module with a name.

    ``build`` and ``call`` are Python expressions in the target's own namespace, with ``torch``:
    ``"MHA(64, 8)"`` and ``"torch.randn(2, 10, 64), causal=True"``. ``expect`` is the contract.
    ``stated`` tells whether the user named this class or function (a named one without attention
    is a failure, one that a folder scan came upon is not).
    """

    text: str
    path: str | None = None
    module: str | None = None
    qualname: str | None = None
    build: str | None = None
    call: str | None = None
    expect: tuple[str, ...] = ()
    stated: bool = True
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ShapeProblem:
    """A build or call that broke on a width or on a mask's fill, told in attention's terms.

    ``code``: "MHA102" (num_heads does not divide a width), "MHA103" (head widths contradict each
    other) or "MHA305" (the fill does not fit the type). ``span``: the user's line that broke.
    ``evidence``: the error as torch or the user's own assert put it, and the sizes that were read.
    """

    code: str
    message: str
    span: Span
    help: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Translation:
    """An error of a build or call that is no finding, in attention's terms, at the user's line."""

    message: str
    span: Span
    help: str = ""
