"""Say why a target was not built or called, and what to pass instead."""

from __future__ import annotations

import ast
import dataclasses
import shlex
import traceback
from typing import Any

import torch

from mha_lint.model.report import NotChecked
from mha_lint.model.target import ShapeProblem
from mha_lint.targets.causes import raised_at, remedy
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.make import ClassGivenError, FileMaker, StageError
from mha_lint.targets.scene import scene_of
from mha_lint.targets.session import describe
from mha_lint.targets.shapes import explain_shape_error, translate_error
from mha_lint.targets.traced import in_words, traced


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
    what = {"build": f"building {build}", "arguments": f"making the arguments {call}",
            "call": f"calling {build} with ({call})"}[failure.stage]  # fmt: skip
    home = maker.loaded.home
    detail = error_text(failure.error)
    problem = explain_shape_error(failure.error, home) if certain else None
    if problem is not None:
        return NotChecked(f"{what} failed: {problem.message}", problem.help, detail, "", problem)
    told = translate_error(failure.error, home)
    if told is not None:
        where = f"line {told.span.line}"
        if told.span.path != maker.span.path:
            where = f"{told.span.path}:{told.span.line}"
        hint = told.help or _to_pass(maker, failure, build, unsure)
        return NotChecked(f"{what} failed at {where}: {told.message}", hint, detail)
    why = describe(failure.error)
    if isinstance(failure.error, ClassGivenError):
        why = str(failure.error)
    hint = remedy(failure.error) or _to_pass(maker, failure, build, unsure)
    hint = hint or raised_at(failure.error, home)
    return NotChecked(f"{what} failed: {why}", hint, detail)


def too_slow(maker: FileMaker, build: str, call: str, seconds: float) -> NotChecked:
    """Return that `build` (or its `call`, unless that is empty) did not end within `seconds`."""
    what = f"calling {build} with ({call})" if call else f"building {build}"
    hint = f"does it end? If it only takes long: {_blank(maker, build)}, with smaller sizes"
    return NotChecked(f"{what} took longer than {seconds:g} s, the limit of one try", hint)


def _to_pass(maker: FileMaker, failure: StageError, build: str, unsure: tuple[str, ...]) -> str:
    """Return what the user has not stated yet and may, with gaps where our guess failed."""
    spec = maker.spec
    if spec.build is not None and spec.call is not None:
        return ""
    if isinstance(failure.error, ClassGivenError):
        return f"call the class: --build {_quoted(_skeleton(maker, build, ()))}"
    if failure.stage == "build" or spec.call is not None:
        shown = _skeleton(maker, spec.qualname or build, unsure)
        call = "torch.randn(2, 10, 64)"
    else:
        shown, call = build, _call_skeleton(maker, build)
    if spec.build is not None:
        hint = f"pass --call {_quoted(call)}"
    elif spec.call is not None:
        hint = f"pass --build {_quoted(shown)}"
    else:
        hint = flags(shown, call)
    return f"could not guess {', '.join(unsure)}; {hint}" if unsure else hint


def with_trace(told: NotChecked, maker: FileMaker, failure: StageError, build: str) -> NotChecked:
    """Add to `told` what a symbolic trace shows, where the module builds and no guessed call succeeded.

    The target stays not checked: a trace has no numbers to judge.
    """
    if failure.stage == "build" or told.problem is not None or maker.spec.call is not None:
        return told
    try:
        module = maker.build(build)
    except StageError:  # it was built before, and not again: nothing to add
        return told
    found = traced(module, maker.loaded.home)
    if found is None:
        return told
    scene = scene_of(failure.error, maker.loaded.home) if failure.stage == "call" else None
    unplaced = scene is not None and "failed at" not in told.reason
    ends = f"; the call fails at line {scene.span.line}" if scene is not None and unplaced else ""
    reason = f"{told.reason}; traced without a call, {in_words(found, maker.span.path)}{ends}"
    hint = flags(build, found.call) if found.call else told.hint
    return dataclasses.replace(told, reason=reason, hint=hint)


def same_at_every_size(errors: tuple[BaseException, ...], home: str) -> ShapeProblem | None:
    """Return the width problem that every set of sizes runs into at the same line, if any.

    One guess that breaks says little; widths that never fit are the code's own fault, unless the
    arguments themselves meet there: how they lie was guessed.
    """
    if any(_arguments_meet(e, home) for e in errors):
        return None
    found = [explain_shape_error(e, home) for e in errors]
    if len(found) < 3 or any(problem is None for problem in found):
        return None
    places = {(p.code, p.span.line) for p in found if p is not None}
    return found[0] if len(places) == 1 else None


def _arguments_meet(error: BaseException, home: str) -> bool:
    """Return whether the expression that failed reads an argument of the call, or a view of one."""
    scene = scene_of(error, home)
    if scene is None:
        return False
    code, values = scene.outermost.f_code, scene.outermost.f_locals
    given = [values.get(n) for n in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    stored = {t.untyped_storage().data_ptr() for t in given if isinstance(t, torch.Tensor)}
    read = [scene.value(n) for n in ast.walk(scene.node) if isinstance(n, ast.Name)]
    return any(
        isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() in stored for t in read
    )


def flags(build: str, call: str) -> str:
    """Return the options to pass, ready to be copied."""
    return f"pass --build {_quoted(build)} --call {_quoted(call)}"


def error_text(error: BaseException) -> str:
    """Return the end of the traceback, for -v."""
    return "".join(traceback.format_exception(error))[-4000:]


def _quoted(text: str) -> str:
    return shlex.quote(text) if '"' in text or "$" in text else f'"{text}"'


def _blank(maker: FileMaker, build: str) -> str:
    """Return the options to pass, with gaps."""
    return flags(_skeleton(maker, maker.spec.qualname or build, ()), _call_skeleton(maker, build))


def _skeleton(maker: FileMaker, name: str, unsure: tuple[str, ...]) -> str:
    """Return ``Cls(d_model=..., gate=...)``: what a --build expression has to fill in."""
    made = _named(maker, name)
    required = [p.name for p in parameters_of(made) if p.default is p.empty] if made else []
    return f"{name}({', '.join(f'{n}=...' for n in required or unsure)})"


def _call_skeleton(maker: FileMaker, build: str) -> str:
    """Return ``x=..., mask=...``: what a --call expression has to fill in."""
    made = _named(maker, maker.spec.qualname or build)
    is_class = isinstance(made, type)
    given = list(parameters_of(getattr(made, "forward", None) if is_class else made))
    required = [p.name for p in given[is_class:] if p.default is p.empty]
    return ", ".join(f"{n}=..." for n in required) or "..."


def _named(maker: FileMaker, name: str) -> Any:
    made: Any = maker.namespace().get(name.partition(".")[0])
    for part in name.split(".")[1:]:
        made = getattr(made, part, None)
    return made
