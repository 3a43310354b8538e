"""The report of a target that could not be judged; this module imports no torch."""

from __future__ import annotations

from mha_lint.model.report import NotChecked, Status, TargetReport
from mha_lint.model.target import TargetSpec


def not_checked(failure: NotChecked, spec: TargetSpec | None) -> TargetReport:
    """Return the report of a target that could not be judged."""
    text = spec.text if spec is not None else failure.target
    path = spec.path if spec is not None and spec.path is not None else text.partition("::")[0]
    return TargetReport(
        target=text,
        path=path,
        class_name=spec.qualname if spec is not None else None,
        line=spec.line if spec is not None else None,
        status=Status.FAILED,
        reason=failure.reason,
        hint=failure.hint or None,
        detail=failure.detail,
    )
