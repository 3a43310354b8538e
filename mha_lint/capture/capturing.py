"""Record one call of a module or function, and check the recording on fresh inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx, nn

from mha_lint.capture.builder import GraphBuilder
from mha_lint.capture.calls import CallRecorder
from mha_lint.capture.copies import Copied, copied, has_lazy_parameters, kept_as_it_was
from mha_lint.capture.errors import CaptureError
from mha_lint.capture.faithful import measure
from mha_lint.capture.frames import FrameWalker, Resolver
from mha_lint.capture.inputs import named_inputs, parameter_names
from mha_lint.capture.known import KnownTensors
from mha_lint.capture.modes import FunctionMode, aten_operations
from mha_lint.capture.recording import Recording
from mha_lint.capture.regions import visible
from mha_lint.capture.state import SEED, recordable, seeded, without_collection
from mha_lint.capture.walk import tensors_in
from mha_lint.model.speakable import speakable

_ATTEMPTS = 4


def record(
    module: nn.Module | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    argument_names: Sequence[str] = (),
    copy: bool = True,
    compare: bool = True,
) -> Recording:
    """Record ``module(*args, **kwargs)``, in the module's own dtype and mode.

    With `copy`, module and arguments are copied first, so that a call that changes them leaves the
    caller's untouched. Without `compare`, nothing says whether the recording is faithful, which is
    enough to see what was called. Raises `CaptureError` when the call fails, or cannot be followed.
    """
    names = tuple(argument_names) or parameter_names(module)

    def fresh() -> Copied:
        subject = copied(module, args, kwargs)
        if has_lazy_parameters(subject.subject):
            # Sizes of lazy layers come with their first call, which is not the one to record.
            first = copied(len, args, kwargs)
            with recordable():
                seeded(SEED)
                subject.subject(*first.args, **first.kwargs)
        return subject

    def start() -> Copied:
        return fresh() if copy else Copied(module, args, kwargs)

    with without_collection():
        try:
            recording = _settled(start, names, aten=False)
        except (Exception, SystemExit) as error:
            recording = _second_try(start, names, error)
        if compare:
            recording.faithful = measure(recording, fresh)
    if recording.faithful.ok:
        _cleared(recording)
    return recording


def _second_try(
    start: Callable[[], Copied], names: Sequence[str], error: BaseException
) -> Recording:
    """Tell a call that fails by itself from one that only the recorder makes fail."""
    try:
        subject = start()
        with recordable(), kept_as_it_was(subject.subject):
            seeded(SEED)
            subject.subject(*subject.args, **subject.kwargs)
    except (Exception, SystemExit) as raised:
        own = speakable(raised)
        raise CaptureError(f"the call failed: {type(own).__name__}: {own}", own) from own
    try:
        return _settled(start, names, aten=True)
    except (Exception, SystemExit):
        error = speakable(error)
        reason = f"the call runs, but could not be recorded: {type(error).__name__}: {error}"
        raise CaptureError(reason, error) from error


def _settled(start: Callable[[], Copied], names: Sequence[str], *, aten: bool) -> Recording:
    """Record until no function turns out to change its arguments unexpectedly."""
    learned: set[Any] = set()
    for _ in range(_ATTEMPTS):
        recording, surprises = _attempt(start(), names, learned, aten=aten)
        if not surprises:
            break
        learned |= surprises
    return recording


def _attempt(
    subject: Copied, names: Sequence[str], learned: set[Any], *, aten: bool
) -> tuple[Recording, set[Any]]:
    module = subject.subject
    known = KnownTensors(module, subject.args, subject.kwargs)
    walker = FrameWalker({id(m): path for path, m in known.modules.items()})
    classes = {path: type(m).__name__ for path, m in known.modules.items()}
    builder = GraphBuilder(walker, known, classes)
    calls = CallRecorder(builder, learned)
    named = named_inputs(subject.args, subject.kwargs, names)
    inputs = tuple(x.detach().clone() for _, x in named)
    placeholders = []
    for aliases, x in named:
        placeholders.append(builder.placeholder(aliases[0], x))
        placeholders[-1].meta["aliases"] = aliases
    try:
        with recordable(), kept_as_it_was(module, builder.bindings.snapshot), visible(calls):
            seeded(SEED)
            walker.base = sys._getframe(0)
            with aten_operations(calls) if aten else FunctionMode(calls):
                result = module(*subject.args, **subject.kwargs)
            calls.settle()
            builder.at(walker.root)
            outputs = list(tensors_in(result))
            nodes = [builder.node_of(x) for _, x in outputs]
    finally:
        walker.clear()
    builder.graph.output(tuple(nodes)).meta.update(op="output", stack=())
    _finish(builder)
    recording = Recording(
        graph=builder.graph,
        placeholders=tuple(placeholders),
        inputs=inputs,
        input_names=tuple(aliases[0] for aliases, _ in named),
        values=builder.values,
        outputs=tuple(nodes),
        output_names=tuple(name for name, _ in outputs),
        parameters={
            n.meta["parameter"]: n
            for n in builder.graph.find_nodes(op="get_attr")
            if "parameter" in n.meta
        },
        module=module if isinstance(module, nn.Module) else None,
    )
    return recording, calls.surprises


def _finish(builder: GraphBuilder) -> None:
    """Work out the stacks, and put the values from before changes into recorded tuples."""
    resolver = Resolver()
    for node, positions in builder.positions.items():
        node.meta["stack"] = resolver.stack(positions)
    if builder.bindings.serial:
        for node, value in builder.values.items():
            if type(value) in (tuple, list):
                _reassemble(node, builder.values)


def _reassemble(node: fx.Node, values: dict[fx.Node, Any]) -> None:
    items = list(values[node])
    for user in node.users:
        if user.meta["op"] == "getitem" and user in values:
            items[int(user.args[1])] = values[user]  # type: ignore[arg-type]
    values[node] = tuple(items)


def _cleared(recording: Recording) -> None:
    """Drop the suspicion from nodes that the outputs depend on.

    What flows into outputs that agree on fresh inputs did not depend on the inputs.
    """
    pending, seen = list(recording.outputs), set(recording.outputs)
    while pending:
        node = pending.pop()
        node.meta.pop("tainted", None)
        for source in node.all_input_nodes:
            if source not in seen:
                seen.add(source)
                pending.append(source)
