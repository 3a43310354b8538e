"""The last resort for a module that builds and that no call gets through: trace it, run nothing.

``torch.fx.symbolic_trace`` needs no inputs, but sees one path only and no shapes, so nothing is
judged by it. It tells where attention seems to stand and what the inputs must fit, and so what to
pass. The same tracer is used here, told to keep the user's lines and what it has seen when it fails.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from mha_lint.targets.infer.errors import is_user_file
from mha_lint.targets.session import is_interrupt
from mha_lint.targets.timelimit import TimeLimitError, time_limit

SECONDS = 2.0
BATCH, LENGTH = 2, 10
ANSWERS = (None, False, True)
"""What ``if x.sum() > 0`` is told: first nothing, which ends the trace, then the one and the other."""

PRODUCTS = frozenset(["matmul", "bmm", "baddbmm", "einsum", "mm"])
SOFTMAX = frozenset(["softmax", "log_softmax", "softmin"])
WHOLE = frozenset(["scaled_dot_product_attention", "multi_head_attention_forward"])


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of attention in the traced graph, with the user's line."""

    name: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Traced:
    """What the traced graph shows: the stages of each attention, and the arguments to pass.

    ``call``: an expression for each required argument, "..." where the graph says nothing of it.
    """

    sites: tuple[tuple[Stage, ...], ...]
    call: str


def traced(module: Any, home: str = "") -> Traced | None:
    """Return what a symbolic trace of `module` shows of attention; None if that is nothing.

    ``home``: the folder of an installed package that is itself the target.
    """
    for answer in ANSWERS:
        tracer = _Tracer(module, home, answer)
        try:
            with time_limit(SECONDS):
                tracer.trace(module, concrete_args=_defaults(module))
        except TimeLimitError:
            return None
        except BaseException as error:  # what was traced until then is there all the same
            if is_interrupt(error):
                raise
        graph: fx.Graph | None = getattr(tracer, "graph", None)
        sites = _sites(graph, tracer) if graph is not None else ()
        if graph is not None and sites:
            return Traced(sites, _call(graph, tracer))
    return None


class _Tracer(fx.Tracer):
    """Keeps the user's line of each node, and answers conditions on values that are not there."""

    def __init__(self, subject: Any, home: str, answer: bool | None) -> None:
        super().__init__()
        self.subject, self.home, self.answer = subject, home, answer
        self.lines: dict[fx.Node, tuple[str, int]] = {}

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Note where the user's code stands."""
        node = super().create_node(*args, **kwargs)
        frame = sys._getframe(1)
        while frame is not None:
            if is_user_file(frame.f_code.co_filename, self.home):
                self.lines[node] = (frame.f_code.co_filename, frame.f_lineno)
                break
            frame = frame.f_back  # type: ignore[assignment]
        return node

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Answer a condition, or let it end the trace."""
        return super().to_bool(obj) if self.answer is None else self.answer


def _defaults(module: Any) -> dict[str, Any]:
    """Return the arguments that keep their default: without it, flags would be unknown too."""
    return {
        p.name: p.default
        for p in _parameters(module)
        if p.default is None or isinstance(p.default, bool | int | float | str)
    }


def _parameters(module: Any) -> list[inspect.Parameter]:
    call: Callable[..., Any] = module.forward if isinstance(module, nn.Module) else module
    try:
        found = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _operation(node: fx.Node, tracer: _Tracer) -> str:
    """Return the name of what `node` computes: "matmul" for ``@``, "softmax" for an nn.Softmax."""
    if node.op == "call_module":
        held = _module(node, tracer)
        if isinstance(held, nn.MultiheadAttention):
            return "scaled_dot_product_attention"
        return "softmax" if isinstance(held, nn.Softmax) else ""
    if node.op == "call_method":
        return str(node.target)
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


def _module(node: fx.Node, tracer: _Tracer) -> nn.Module | None:
    try:
        return tracer.root.get_submodule(str(node.target))
    except AttributeError:
        return None


def _sites(graph: fx.Graph, tracer: _Tracer) -> tuple[tuple[Stage, ...], ...]:
    """Return each softmax with the products before and behind it, and each call that is all three."""
    nodes = list(graph.nodes)
    on_data: set[fx.Node] = set()
    for node in nodes:
        if node.op == "placeholder" or any(n in on_data for n in node.all_input_nodes):
            on_data.add(node)
    names = {n: _operation(n, tracer) for n in nodes}
    products = {
        n for n in nodes if names[n] in PRODUCTS and sum(m in on_data for m in _operands(n)) > 1
    }
    found: list[tuple[Stage, ...]] = []
    for node in nodes:
        if names[node] in WHOLE:
            found.append(_stages([("", node)], tracer))
        elif names[node] in SOFTMAX and node in on_data:
            before = _nearest(node, products, lambda n: n.all_input_nodes)
            behind = _nearest(node, products, lambda n: n.users)
            if before is not None:
                steps = [("scores", before), ("softmax", node), ("values", behind)]
                found.append(_stages(steps, tracer))
    return tuple(dict.fromkeys(stages for stages in found if stages))


def _operands(node: fx.Node) -> list[fx.Node]:
    """Return the nodes among the arguments, one that stands there twice twice."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), lambda n: found.append(n))
    return found


def _nearest(
    start: fx.Node, wanted: set[fx.Node], step: Callable[[fx.Node], Iterable[fx.Node]]
) -> fx.Node | None:
    """Return the first of `wanted` that `step` reaches from `start`, breadth first."""
    seen, front = {start}, [start]
    while front:
        here = front.pop(0)
        for node in step(here):
            if node in wanted:
                return node
            if node not in seen:
                seen.add(node)
                front.append(node)
    return None


def _stages(steps: list[tuple[str, fx.Node | None]], tracer: _Tracer) -> tuple[Stage, ...]:
    return tuple(
        Stage(name, *tracer.lines[node])
        for name, node in steps
        if node is not None and node in tracer.lines
    )


def _call(graph: fx.Graph, tracer: _Tracer) -> str:
    """Return the required arguments, each as wide as the first layer that takes it."""
    inputs = {str(n.target): n for n in graph.find_nodes(op="placeholder")}
    required = [p for p in _parameters(tracer.subject) if p.default is p.empty]
    return ", ".join(f"{p.name}={_value(inputs.get(p.name), tracer)}" for p in required)


def _value(node: fx.Node | None, tracer: _Tracer) -> str:
    """Return a tensor that fits the layer which takes `node`, "..." if none does."""
    for user in node.users if node is not None else ():
        match _module(user, tracer) if user.op == "call_module" else None:
            case nn.Embedding() as table:
                return f"torch.randint({table.num_embeddings}, ({BATCH}, {LENGTH}))"
            case nn.Linear() as linear:
                return f"torch.randn({BATCH}, {LENGTH}, {linear.in_features})"
            case nn.LayerNorm() as norm:
                return f"torch.randn({BATCH}, {LENGTH}, {norm.normalized_shape[-1]})"
            case nn.MultiheadAttention() as attention:
                return f"torch.randn({BATCH}, {LENGTH}, {attention.embed_dim})"
            case _:
                pass
    return "..."


def in_words(found: Traced, path: str) -> str:
    """Return "attention seems to stand at lines 24 (scores), 25 (softmax) and 26 (values)".

    ``path``: the target's own file, which need not be named.
    """
    told = [_place(stages, path) for stages in found.sites[:3]]
    more = f" and {len(found.sites) - 3} more" if len(found.sites) > 3 else ""
    return f"attention seems to stand at {'; at '.join(told)}{more}"


def _place(stages: tuple[Stage, ...], path: str) -> str:
    names: dict[tuple[str, int], list[str]] = {}
    for stage in stages:
        names.setdefault((stage.path, stage.line), []).append(stage.name)
    parts = []
    for (file, line), here in names.items():
        steps = f" ({', '.join(here)})" if any(here) else ""
        owner = "" if file == path else f" of {file.rpartition('/')[2]}"
        parts.append(f"line {line}{owner}{steps}")
    return ", ".join(parts)
