"""Does attention run over the batch? Which axis that is, is told by the code and the call."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import torch
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources, function_source
from mha_lint.facts.places import span_of
from mha_lint.model.facts import BatchMixing, Fact, Kind, Known, NotApplicable
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source

_BATCH = r"(?:b|bs|bsz|bz|nb|batch|batch_size|batchsize|n_batch|num_batch|nbatch|samples?)"
_TIME = (
    r"(?:t|s|l|ln|n|seq|seq_len|seqlen|length|len|time|steps?|tgt_len|src_len|target_len|source_len|"
    r"tokens?)"
)
_DOC_BATCH = re.compile(rf"[(\[]\s*{_BATCH}\s*[,x*]\s*\w", re.IGNORECASE)
_DOC_TIME = re.compile(rf"[(\[]\s*{_TIME}\s*[,x*]\s*{_BATCH}\b", re.IGNORECASE)
_PURPOSE = re.compile(
    r"(samples?|instances?|examples?|batch)\W+(?:\w+\W+){0,6}?(exchange|attend|interact|relation|mix)|"
    r"(across|over|between|among)\s+(the\s+)?(samples|batch|instances|examples)|mini-batch",
    re.IGNORECASE,
)


def measure_batch(
    bench: Bench, sites: list[Site], root: Any, forward_text: str, *, guessed: bool = False
) -> Fact[BatchMixing]:
    """Return whether samples of one batch influence each other through attention."""
    for site in sites:
        first = site.all[0]
        if first.q is None or first.q.source is None or first.kind in (Kind.LINEAR, Kind.CHANNEL):
            continue
        found = _mixed_axis(bench, sites, first.q.source, first.q.position_axes)
        if found is None:
            continue
        placeholder, axis, other = found
        verdict = _which_is_batch(bench, placeholder, root, forward_text, guessed)
        if verdict is None:
            continue
        why, strong = verdict
        largest = _leak(bench, placeholder)
        span = span_of(first.scores)
        return Known(
            BatchMixing(
                True,
                axis,
                why,
                largest,
                span,
                intended=bool(_PURPOSE.search(forward_text)),
                inferred=not strong,
            ),
            f"changing sample 0 of {_name(bench, placeholder)} alone changes the outputs of the other"
            f" samples by up to {largest:.1g}; axis {other} is never attended over",
        )
    if not sites:
        return NotApplicable("there is no attention site")
    return Known(
        BatchMixing(False, 0, "", 0.0, None), "no sample's output moves with another sample"
    )


def _name(bench: Bench, placeholder: Node) -> str:
    names = dict(zip(bench.recording.placeholders, bench.recording.input_names, strict=True))
    return names[placeholder]


def _mixed_axis(
    bench: Bench, sites: list[Site], source: Source, positions: frozenset[int]
) -> tuple[Node, int, int] | None:
    """Return (input, 0, other axis) where attention runs over axis 0 and never over another sequence axis."""
    above = bench.dependence.ancestors([source.node])
    for placeholder in bench.recording.placeholders:
        if placeholder not in above:
            continue
        value = bench.replay.base(placeholder)
        tokens = not value.is_floating_point()
        if value.dim() < (2 if tokens else 3) or value.shape[0] < 2 or value.dtype is torch.bool:
            continue
        maps = {axis: _maps_to(bench, placeholder, axis, source) for axis in range(value.dim())}
        if not maps[0] or not maps[0] <= positions:
            continue
        others = [a for a in maps if a != 0 and maps[a] and not maps[a] & positions]
        if others and not any(_attended(bench, s, placeholder, others[0]) for s in sites):
            return placeholder, 0, others[0]
        if not others and _recurrent_axis(bench, value, source, positions):
            return placeholder, 0, 1
    return None


def _recurrent_axis(
    bench: Bench, value: torch.Tensor, source: Source, positions: frozenset[int]
) -> bool:
    """Return whether axis 1 of the input lives on as an axis that attention leaves alone.

    A recurrent layer before the attention has mixed it already, so that only its size tells.
    """
    sizes = bench.replay.base(source.node).shape
    rest = [a for a in source.data_axes if a not in positions and sizes[a] > 1]
    return len(rest) == 1 and sizes[rest[0]] == value.shape[1] and value.shape[1] != value.shape[0]


def _maps_to(bench: Bench, placeholder: Node, axis: int, source: Source) -> frozenset[int]:
    """Return the data axes of `source` along which slice 0 of the input's `axis` stays apart."""
    value = bench.replay.base(placeholder)
    if value.shape[axis] < 2:
        return frozenset()
    moved_in = value.clone()
    if value.is_floating_point():
        moved_in.select(axis, 0).add_(_noise(moved_in.select(axis, 0)))
    else:
        first = moved_in.select(axis, 0)
        first.copy_(torch.where(first > 0, first - 1, first + 1))
    before = bench.replay.base(source.node)
    try:
        (after,) = bench.replay.run([source.node], {placeholder: moved_in})
    except (IndexError, RuntimeError):
        return frozenset()
    changed = (after - before).abs() > 1e-12
    if not bool(changed.any()):
        return frozenset()
    found = set()
    for a in source.data_axes:
        along = changed.movedim(a, 0).flatten(1).any(1)
        if bool(along.any()) and not bool(along.all()):
            found.add(a)
    return frozenset(found)


def _attended(bench: Bench, site: Site, placeholder: Node, axis: int) -> bool:
    operand = site.all[0].q
    if operand is None or operand.source is None:
        return False
    return bool(_maps_to(bench, placeholder, axis, operand.source) & operand.position_axes)


def _noise(like: torch.Tensor) -> torch.Tensor:
    """Return fixed noise: a norm in front would remove a constant."""
    generator = torch.Generator().manual_seed(19)
    return torch.rand(like.shape, generator=generator, dtype=like.dtype) + 0.1


def _leak(bench: Bench, placeholder: Node) -> float:
    value = bench.replay.base(placeholder)
    moved_in = value.clone()
    if value.is_floating_point():
        moved_in[0] += _noise(moved_in[0])
    else:
        moved_in[0] = torch.where(moved_in[0] > 0, moved_in[0] - 1, moved_in[0] + 1)
    outputs = [n for n in bench.recording.outputs if bench.replay.base(n).is_floating_point()]
    largest = 0.0
    for node, after in zip(
        outputs, bench.replay.run(outputs, {placeholder: moved_in}), strict=True
    ):
        before = bench.replay.base(node)
        if before.dim() and before.shape[0] == value.shape[0]:
            largest = max(largest, float((after - before)[1:].abs().max()))
    return largest


def _which_is_batch(
    bench: Bench, placeholder: Node, root: Any, text: str, guessed: bool
) -> tuple[str, bool] | None:
    """Return what says that axis 0 is the batch and whether that is code, or None for time-first code."""
    value = bench.replay.base(placeholder)
    if value.dim() >= 4:
        return "a 4-D map has its samples on axis 0", True
    votes_batch: list[tuple[str, bool]] = []
    votes_time: list[str] = []
    if isinstance(root, torch.nn.Module):
        # What a layer was told outweighs what a variable is called.
        for name, module in root.named_modules():
            if getattr(module, "batch_first", None) is True and isinstance(
                module, torch.nn.RNNBase
            ):
                return f"{name or 'the module'} has batch_first=True", True
            if getattr(module, "batch_first", None) is True:
                votes_batch.append((f"{name or 'the module'} has batch_first=True", True))
    for kind, why in _in_code(text):
        if kind == "batch":
            votes_batch.append((why, True))
        else:
            votes_time.append(why)
    if _DOC_TIME.search(text):
        votes_time.append("a comment or docstring writes the shape time-first")
    elif _DOC_BATCH.search(text):
        votes_batch.append(("a comment or docstring writes the shape batch-first", False))
    if not value.is_floating_point() and not votes_time:
        votes_batch.append(("token ids come as (batch, position)", False))
    if votes_time:
        return None
    if votes_batch:
        return votes_batch[0]
    sizes = tuple(value.shape)
    if sizes[0] < sizes[1] and not guessed:
        return f"the call passes {sizes[0]} x {sizes[1]}, fewer samples than positions", False
    return None


def _in_code(text: str) -> list[tuple[str, str]]:
    """Return what names, pooling and indexing in the code say about axis 0."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return []
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and _is_shape(node.value)
        ):
            names = [e.id.lower() for e in node.targets[0].elts if isinstance(e, ast.Name)]
            if len(names) >= 3 and len(names) == len(node.targets[0].elts):
                line = ast.unparse(node)
                batch = [bool(re.fullmatch(_BATCH, n)) for n in names]
                if batch[0]:
                    found.append(("batch", f"the code says {line}"))
                elif batch[1]:
                    found.append(("time", f"the code says {line}"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            axis = _reduced_axis(node)
            if axis == 1:
                found.append(("batch", f"the code pools over axis 1: {ast.unparse(node)}"))
            elif axis == 0:
                found.append(("time", f"the code pools over axis 0: {ast.unparse(node)}"))
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Tuple)
            and len(node.slice.elts) >= 2
        ):
            first, second = node.slice.elts[:2]
            whole = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
            if (
                whole
                and isinstance(second, ast.Constant | ast.UnaryOp)
                and len(node.slice.elts) == 2
            ):
                found.append(("batch", f"the code picks one position: {ast.unparse(node)}"))
    return found


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "shape"
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
    )


def _reduced_axis(node: ast.Call) -> int | None:
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in (
        "mean",
        "sum",
        "max",
        "amax",
    ):
        return None
    given = next(
        (k.value for k in node.keywords if k.arg in ("dim", "axis")),
        node.args[0] if node.args else None,
    )
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def source_text(root: Any) -> str:
    """Return the source of the class (or function) of `root`, "" where there is none."""
    if isinstance(root, torch.nn.Module):
        return "\n".join(source.text for source in class_sources(type(root)))
    source = function_source(root)
    return source.text if source is not None else ""
