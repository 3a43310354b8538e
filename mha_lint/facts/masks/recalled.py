"""The call made once more with padding, for code that asks in Python whether anything is padded."""

from __future__ import annotations

from torch import Tensor

from mha_lint.capture import CaptureError, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.knowledge import Knowledge
from mha_lint.facts.masks.roots import Root
from mha_lint.targets.subject import Subject


def is_read_by_python(bench: Bench, known: Knowledge) -> bool:
    """Return whether padding was made up, and Python reads a number made of the mask.

    ``if mask.all(): mask = None`` leaves one number that no operation reads. What the recording
    shows is then no more than the call without padding.
    """
    if not known.given or known.root is None:
        return False
    below = bench.dependence.descendants([known.root.placeholder])
    return any(
        isinstance(value := bench.recording.values.get(node), Tensor)
        and value.numel() == 1
        and not any(u.op == "call_function" for u in bench.dependence.users(node))
        and node not in bench.recording.outputs
        for node in below
    )


def padded_call(subject: Subject, known: Knowledge) -> Bench | None:
    """Return the call with the padding of `known` in its mask or ids, None where neither is given."""
    root = known.root
    if root is None or root.node not in known.given:
        return None
    args, kwargs = list(subject.args), dict(subject.kwargs)
    names = subject.argument_names[: len(args)]
    place = names.index(root.argument) if root.argument in names else None
    given = kwargs.get(root.argument) if place is None else args[place]
    changed = _changed(given, known.given[root.node], root) if isinstance(given, Tensor) else None
    if changed is None:
        return None
    if place is None:
        kwargs[root.argument] = changed
    else:
        args[place] = changed
    try:
        with subject.environment():
            again = record(
                subject.module, tuple(args), kwargs, argument_names=subject.argument_names
            )
    except CaptureError:
        return None
    return Bench.of(again)


def _changed(given: Tensor, wanted: Tensor, root: Root) -> Tensor | None:
    """Return an argument by which `root` becomes what is `wanted`."""
    if given.shape != wanted.shape:
        return None
    if root.node.op == "placeholder":
        return wanted.to(given.dtype)
    if root.compares in ("eq", "ne") and root.constant is not None:
        padded = wanted.bool() if root.compares == "eq" else ~wanted.bool()
        return given.masked_fill(padded, root.constant)
    return None
