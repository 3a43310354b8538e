"""Say why a target was not built or called, and what to pass instead."""

from __future__ import annotations

import shlex
import traceback
from typing import Any

from mha_lint.model.report import NotChecked
from mha_lint.model.target import ShapeProblem
from mha_lint.targets.infer.bodies import parameters_of
from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.session import describe
from mha_lint.targets.shapes import explain_shape_error


def not_made(
    maker: FileMaker,
    failure: StageError,
    build: str,
    call: str,
    unsure: tuple[str, ...] = (),
    *,
    certain: bool = False,
) -> NotChecked:
    """Return why `build` or `call` failed.

    ``certain``: the user stated or wrote them, so that a width error is the code's own.
    """
    name = maker.spec.qualname or build
    what = {"build": f"building {build}", "arguments": f"making the arguments {call}",
            "call": f"calling {build} with ({call})"}[failure.stage]  # fmt: skip
    hint = ""
    if maker.spec.build is None or maker.spec.call is None:
        shown = build if failure.stage != "build" else _skeleton(maker, name, unsure)
        hint = flags(shown, call or "torch.randn(2, 10, 64)")
        if unsure:
            hint = f"could not guess {', '.join(unsure)}; {hint}"
    reason = f"{what} failed: {describe(failure.error)}"
    problem = explain_shape_error(failure.error, maker.loaded.home) if certain else None
    if problem is not None:
        reason, hint = f"{what} failed: {problem.message}", problem.help
    return NotChecked(reason, hint, error_text(failure.error), problem=problem)


def same_at_every_size(errors: tuple[BaseException, ...], home: str) -> ShapeProblem | None:
    """Return the width problem that every set of sizes runs into at the same line, if any.

    One guess that breaks says little; widths that never fit are the code's own fault.
    """
    found = [explain_shape_error(e, home) for e in errors]
    if len(found) < 3 or any(problem is None for problem in found):
        return None
    places = {(p.code, p.span.line) for p in found if p is not None}
    return found[0] if len(places) == 1 else None


def flags(build: str, call: str) -> str:
    """Return the options to pass, ready to be copied."""
    return f"pass --build {_quoted(build)} --call {_quoted(call)}"


def error_text(error: BaseException) -> str:
    """Return the end of the traceback, for -v."""
    return "".join(traceback.format_exception(error))[-4000:]


def _quoted(text: str) -> str:
    return shlex.quote(text) if '"' in text or "$" in text else f'"{text}"'


def _skeleton(maker: FileMaker, name: str, unsure: tuple[str, ...]) -> str:
    """Return ``Cls(d_model=..., gate=...)``: what a --build expression has to fill in."""
    made: Any = maker.namespace().get(name.partition(".")[0])
    for part in name.split(".")[1:]:
        made = getattr(made, part, None)
    required = [p.name for p in parameters_of(made) if p.default is p.empty] if made else []
    return f"{name}({', '.join(f'{n}=...' for n in required or unsure)})"
