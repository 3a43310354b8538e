"""A model whose call cannot be recorded as a whole: each kind of attention in it by itself."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from mha_lint.capture import CaptureError, Recording, record
from mha_lint.engine.large import joined
from mha_lint.engine.target import Judged, failed, judge_subject, no_attention
from mha_lint.facts.reach import UNFLIPPED
from mha_lint.model.finding import Undecided
from mha_lint.model.report import NotChecked, Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.sites.parts import Part, parts_of
from mha_lint.targets.live import Snapshot, live_subject, take
from mha_lint.targets.live.narrow import narrowed
from mha_lint.targets.make import StageError, run_once
from mha_lint.targets.subject import Subject

NO_SITE = "no attention was found in the recorded call"
TOO_LARGE = "its call is too large to be measured, and cannot be made smaller"
LARGEST = 1 << 25
"""Numbers that the call of one module may compute."""


def judge_modules(
    subject: Subject,
    spec: TargetSpec,
    settings: Settings,
    rules: list[LoadedRule],
    recording: Recording | None,
) -> Judged | None:
    """Judge the first call of each distinct attention module of `subject`, with its real inputs.

    `recording` is that of the whole call, which tells the modules. None: it shows none, or none of
    them could be judged. Where all of them hold no attention, or are too large, that is told.
    """
    module = subject.module
    if not isinstance(module, nn.Module):
        return None
    parts = [] if recording is None else parts_of(recording)
    snapshots = _snapshots(subject, module, parts)
    judged: list[tuple[Part, Judged]] = []
    lost: list[str] = []
    large: list[Part] = []
    barren: set[str] = set()
    for part, snapshot in snapshots:
        try:
            inner = live_subject(snapshot, text=spec.text, expect=spec.expect)
            smaller = narrowed(snapshot, inner)
            if smaller is not None:
                inner = live_subject(smaller, text=spec.text, expect=spec.expect)
            elif recording is not None and part.computed(recording) > LARGEST:
                large.append(part)
                continue
            inner.made_up = subject.made_up
        except StageError as error:
            lost.append(f"{part.class_name} ({part.path}): {error}")
            continue
        one = judge_subject(inner, spec, settings, rules, UNFLIPPED)
        if one.report.sites:
            judged.append((part, one))
        elif one.report.reason == NO_SITE:
            barren.add(part.class_name)
        else:
            lost.append(f"{part.class_name} ({part.path}): {one.report.reason}")
    large = [part for part in large if part.class_name not in barren]
    lost += [f"{part.class_name} ({part.path}): {TOO_LARGE}" for part in large]
    if not judged and large:
        return Judged(failed(NotChecked("; ".join(lost)), spec, settings, subject), [])
    if not judged:
        searched = bool(snapshots) and not lost
        return Judged(no_attention(subject, spec, settings), []) if searched else None
    reports = [
        dataclasses.replace(
            one.report,
            sites=tuple(
                dataclasses.replace(
                    s, repeated=len(part.alike), module=_within(part.path, s.module)
                )
                for s in one.report.sites
            ),
        )
        for part, one in judged
    ]
    whole = dataclasses.replace(
        joined(reports), class_name=subject.name, line=subject.span.line, notes=subject.notes
    )
    if lost:
        more = tuple(Undecided("MHA001", None, f"not judged: {text}") for text in lost)
        whole = dataclasses.replace(
            whole, status=Status.UNDECIDED, undecided=(*whole.undecided, *more)
        )
    return Judged(whole, [c for _, one in judged for c in one.crashes])


def _within(path: str, inner: str) -> str:
    return f"{path}.{inner}" if path and inner else path or inner


def recorded(subject: Subject) -> Recording | None:
    """Return one call of `subject`, which need not hold on other inputs; None where it cannot be had."""
    try:
        with subject.environment():
            return record(
                subject.module,
                subject.args,
                subject.kwargs,
                argument_names=subject.argument_names,
                compare=False,
            )
    except CaptureError:
        return None


def _snapshots(
    subject: Subject, module: nn.Module, parts: list[Part]
) -> list[tuple[Part, Snapshot]]:
    """Run the call once, and copy the first call of each part with what it was made in."""
    by_path = {part.path: part for part in parts if part.path}
    found: dict[str, Snapshot] = {}
    modules = dict(module.named_modules())

    def about_to_run(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if path not in found:
            with torch.no_grad():
                found[path] = take(modules[path], args, kwargs)

    with contextlib.ExitStack() as stack:
        for path in {p for one in by_path for p in (one, one.rpartition(".")[0]) if p}:
            stack.enter_context(_listening(modules[path], path, about_to_run))
        with contextlib.suppress(StageError), subject.environment():
            run_once(subject)
    pairs = []
    for path, part in by_path.items():
        if path in found:
            outer = found.get(path.rpartition(".")[0])
            enclosing = (outer,) if outer is not None else ()
            pairs.append((part, dataclasses.replace(found[path], enclosing=enclosing)))
    return pairs


@contextlib.contextmanager
def _listening(module: nn.Module, path: str, about_to_run: Any) -> Iterator[None]:
    """Tell `about_to_run` of each call of `module`, before it is made."""

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        about_to_run(path, args, kwargs)

    handle = module.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
