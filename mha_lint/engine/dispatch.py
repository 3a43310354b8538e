"""What kind of target a spec names, and which way it goes through the stages."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torch import nn

from mha_lint.engine.large import judge_large
from mha_lint.engine.target import Judged, failed, judge_subject
from mha_lint.model.report import NotChecked
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.targets.large import is_large, mode_of
from mha_lint.targets.open import open_subject
from mha_lint.targets.subject import Subject


def judge_target(spec: TargetSpec, settings: Settings, rules: list[LoadedRule]) -> Judged:
    """Take `spec` through all stages; with no rules, stop behind the facts."""
    located = _located(spec, settings)
    if located.path is not None and located.path.endswith(".json"):
        from mha_lint.engine.config import judge_config  # transformers is asked for there alone

        return judge_config(located, spec, settings, rules)
    opened = open_subject(located, timeout=settings.timeout)
    if isinstance(opened, NotChecked):
        return Judged(failed(opened, spec, settings), [])
    return judge_any(opened, spec, settings, rules)


def judge_any(
    subject: Subject, spec: TargetSpec, settings: Settings, rules: list[LoadedRule]
) -> Judged:
    """Judge a built subject, by its parts where its weights have no values."""
    module = subject.module
    if isinstance(module, nn.Module) and is_large(module):
        return judge_large(subject, spec, settings, rules, mode_of(module))
    return judge_subject(subject, spec, settings, rules)


def _located(spec: TargetSpec, settings: Settings) -> TargetSpec:
    """Return `spec` with its path taken from where the run was started."""
    if spec.path is None:
        return spec
    return dataclasses.replace(spec, path=str(Path(settings.cwd, spec.path)))
