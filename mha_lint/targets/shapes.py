"""Say a width error in attention's terms, at the user's line: which head count does not divide which
width, which widths of a head contradict each other.

Only errors that are certainly about widths, or about a fill that its type cannot hold, are explained;
everything else is None.
"""

from __future__ import annotations

from collections.abc import Callable

from mha_lint.model.target import ShapeProblem, Translation
from mha_lint.targets.fills import overflowing_fill
from mha_lint.targets.scene import Scene, scene_of
from mha_lint.targets.widths.checks import checkpoint, own_check, torch_multihead
from mha_lint.targets.widths.layout import crossed, scattered, unturned
from mha_lint.targets.widths.products import linear, operands, residual
from mha_lint.targets.widths.splits import invalid_view, unflattened

_EXPLANATIONS: tuple[Callable[[Scene, BaseException, str], ShapeProblem | None], ...] = (
    own_check,
    torch_multihead,
    invalid_view,
    unflattened,
    linear,
    unturned,
    operands,
    residual,
    checkpoint,
    overflowing_fill,
)


def explain_shape_error(error: BaseException, home: str = "") -> ShapeProblem | None:
    """Return what `error` means for heads and widths, or None when that is not certain.

    `home`: the folder of an installed package that is itself the target.
    """
    scene = scene_of(error, home)
    if scene is None:
        return None
    message = str(error)
    for explain in _EXPLANATIONS:
        problem = explain(scene, error, message)
        if problem is not None:
            return problem
    return None


def translate_error(error: BaseException, home: str = "") -> Translation | None:
    """Return what `error` means where torch's words are about strides and batches, else None."""
    scene = scene_of(error, home)
    if scene is None:
        return None
    message = str(error)
    return scattered(scene, error, message) or crossed(scene, error, message)
