"""Does the recording compute what the module computes, on inputs that it was not recorded with?

On the recorded inputs any recording does: values that numpy, ``.item()`` or a thread computed stand
in it as constants. So the module and the replay are both given fresh inputs, and compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from mha_lint.capture.copies import Copied, kept_as_it_was
from mha_lint.capture.recording import Faithfulness, Recording
from mha_lint.capture.redraw import redrawn
from mha_lint.capture.replay import Replay
from mha_lint.capture.state import SEED, recordable, seeded
from mha_lint.capture.walk import tensors_in
from mha_lint.targets.large import has_no_values

_HALF = (torch.float16, torch.bfloat16)


def measure(recording: Recording, start: Callable[[], Copied]) -> Faithfulness:
    """Compare the replay of `recording` with a fresh run of a copy of its subject."""
    constants = [recording.values[n] for n in recording.graph.find_nodes(op="get_attr")]
    if any(has_no_values(x) for x in (*recording.inputs, *constants)):
        return Faithfulness(True, 0.0, "not compared: meta and fake tensors have no values")
    generator = torch.Generator().manual_seed(SEED + 1)
    fresh = [redrawn(x, generator) for x in recording.inputs]
    try:
        drawn = fresh
        fresh, expected = _run_on_any(recording, start, drawn)
    except (Exception, SystemExit) as error:
        return Faithfulness(False, math.inf, f"the module fails on other inputs: {_text(error)}")
    if len(expected) != len(recording.outputs):
        why = f"{len(expected)} output tensors on other inputs, {len(recording.outputs)} recorded"
        return Faithfulness(False, math.inf, why)
    try:
        got = _replayed(recording, fresh)
    except Exception as error:
        return Faithfulness(False, math.inf, f"the replay fails on other inputs: {_text(error)}")
    half = any(n.meta.get("dtype") in _HALF for n in recording.graph.nodes)
    found = _compared(recording, got, expected, 1e-2 if half else 1e-5)
    if found.ok and not _same_integers(drawn, fresh):
        found = replace(found, why=f"{found.why}, integers as recorded: it fails on other ones")
    return found


def _run_on_any(
    recording: Recording, start: Callable[[], Copied], fresh: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Run on `fresh` inputs; where that fails, with the integers of the recorded call.

    Lengths, offsets and places fit each other and the rest of the call: in another order cumulative
    lengths may descend.
    """
    try:
        return _run(start(), fresh)
    except (Exception, SystemExit):
        given = recording.inputs
        kept = [x if _is_whole(x) else new for x, new in zip(given, fresh, strict=True)]
        if _same_integers(kept, fresh):
            raise
        return _run(start(), kept)


def _same_integers(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) for a, b in pairs if _is_whole(a))


def _is_whole(x: torch.Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)


def _run(
    subject: Copied, fresh: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Put `fresh` values into the arguments; return them as they arrived, and the outputs."""
    found: dict[int, torch.Tensor] = {}
    for _, x in tensors_in((subject.args, subject.kwargs)):
        found.setdefault(id(x), x)
    with recordable(), kept_as_it_was(subject.subject):
        before = [x.detach().clone() for x in found.values()]
        try:
            for x, new in zip(found.values(), fresh, strict=True):
                _overwrite(x, new)
            arrived = [x.detach().clone() for x in found.values()]
            seeded(SEED)
            result = subject.subject(*subject.args, **subject.kwargs)
            expected = [x.detach().clone() for _, x in tensors_in(result)]
        finally:
            for x, old in zip(found.values(), before, strict=True):
                _overwrite(x, old)  # an argument that cannot be copied is the caller's own
        return arrived, expected


def _overwrite(x: torch.Tensor, new: torch.Tensor) -> None:
    try:
        x.copy_(new)  # in place: inputs may share memory with each other
    except RuntimeError:  # expanded tensors and inference tensors refuse
        x.data = new.clone()


def _replayed(recording: Recording, fresh: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run every node in order on one stream of random numbers, as the module does."""
    replay = Replay(recording, inputs=fresh, dtype=None)
    with recordable():
        seeded(SEED)
        return replay.in_order(recording.outputs)


def _compared(
    recording: Recording, got: list[Any], expected: list[torch.Tensor], tolerance: float
) -> Faithfulness:
    worst, where = 0.0, ""
    for name, one, two in zip(recording.output_names, got, expected, strict=True):
        if one.shape != two.shape:
            shapes = f"{tuple(two.shape)} on other inputs, {tuple(one.shape)} recorded"
            why = f"output{name} has shape {shapes}"
            return Faithfulness(False, math.inf, why)
        error = _difference(one, two)
        if error > worst:
            worst, where = error, name
    if worst <= tolerance:
        return Faithfulness(True, worst, "replay and module agree on fresh inputs")
    return Faithfulness(False, worst, f"on fresh inputs output{where} differs: {_cause(recording)}")


def _difference(one: torch.Tensor, two: torch.Tensor) -> float:
    if one.numel() == 0:
        return 0.0
    one, two = (t if t.layout is torch.strided else t.to_dense() for t in (one, two))
    if one.is_complex():
        one, two = torch.view_as_real(one), torch.view_as_real(two)
    a, b = one.double(), two.double()
    if bool((a.isnan() != b.isnan()).any()) or bool((a.isinf() != b.isinf()).any()):
        return math.inf
    a, b = (torch.nan_to_num(t, nan=0.0, posinf=0.0, neginf=0.0) for t in (a, b))
    scale = max(float(b.abs().max()), 1e-30)
    return float((a - b).abs().max()) / max(scale, 1.0 if scale < 1e-12 else scale)


def _cause(recording: Recording) -> str:
    reasons = {n.meta["tainted"] for n in recording.graph.nodes if "tainted" in n.meta}
    if reasons:
        return str(min(reasons))
    return "values or sizes that depend on the input were fixed when recording"


def _text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
