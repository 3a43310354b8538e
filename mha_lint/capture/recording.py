"""What a recording is: a functional graph, the values that ran through it, and its verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """Whether the replay agrees with the module on inputs that it was not recorded with.

    ``max_error`` is relative to the largest output element; ``why`` says what was compared, or what
    differs.
    """

    ok: bool
    max_error: float
    why: str


@dataclass(eq=False)
class Recording:
    """One recorded call.

    The graph holds placeholders, get_attr, call_function and output nodes only, and no node changes
    a value. ``meta`` of a node: ``op`` (canonical name), ``stack`` (user frames, outermost first),
    ``module``, ``module_class`` and ``call`` (the running submodule), ``shape`` and ``dtype`` of
    tensors; of get_attr nodes ``parameter``, ``buffer`` or ``constant`` (its name); if it applies
    ``lowered``, ``implicit_dim``, ``tainted`` (a reason) and ``autocast``.
    """

    graph: fx.Graph
    placeholders: tuple[fx.Node, ...]
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    values: dict[fx.Node, Any]
    outputs: tuple[fx.Node, ...]
    output_names: tuple[str, ...]
    parameters: dict[str, fx.Node]
    module: nn.Module | None
    programs: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Compiled forms of the graph, kept for replays."""
    drawn: bool = False
    """Whether weights were never made, and drawn at random in their place."""
    widths: dict[int, int] = field(default_factory=dict)
    """Widths of a larger model, by the numbers of channels that stand for them here."""
    faithful: Faithfulness = field(default_factory=lambda: Faithfulness(False, 0.0, "not checked"))

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        """Return the module and all within it by path, none for a function."""
        return dict(self.module.named_modules()) if isinstance(self.module, nn.Module) else {}

    @cached_property
    def graph_module(self) -> fx.GraphModule:
        """Return the graph as a module, to print it or to run it natively."""
        root = nn.Module()
        for node in self.graph.find_nodes(op="get_attr"):
            value = self.values[node].detach()
            root.register_buffer(str(node.target), value)
        return fx.GraphModule(root, self.graph)
