"""The faults that can be planted with certainty, and what must be reported of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the `codes` that name it rightly, and the marks of the lines it may be seen at.

    `along`: codes that may be reported besides, as they are true of the same code. `needs`: what
    the plan draws from, for the fault to be there for certain.
    """

    name: str
    codes: tuple[str, ...]
    marks: tuple[str, ...]
    along: tuple[str, ...] = ()
    needs: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    """The output is that of attention with the weights that are used."""


OPEN = {"form": ("open", "loop")}
SPELLED = {"form": ("open",)}
SCALED = {"form": ("open", "loop", "sdpa"), "heads": (4, 3, 2, 5)}
LATER = {"causal": (True,), "padding": ("",), "cross": (False,)}
PADDED = {"padding": ("keep", "hide"), "form": ("open", "loop", "sdpa")}
STATED = {"packaging": ("class", "block")}

FAULTS: tuple[Fault, ...] = (
    Fault("no scale", ("MHA201",), ("scale", "score", "softmax"), (), {**OPEN}),
    Fault("scale by width", ("MHA202",), ("scale",), (), {**SCALED, "even_width": True}),
    Fault("scale by heads", ("MHA202",), ("scale",), (), SCALED),
    Fault("scale by length", ("MHA202",), ("scale",), (), SCALED),
    Fault("scale not rooted", ("MHA202",), ("scale",), (), SCALED),
    Fault("scale multiplied", ("MHA202",), ("scale",), (), SCALED),
    Fault("scale twice", ("MHA202",), ("scale", "scale again"), (), SCALED),
    Fault("scale after softmax", ("MHA203", "MHA201"), ("scale", "softmax", "score"), ("MHA201",), OPEN),
    Fault("softmax over queries", ("MHA204",), ("softmax",), ("MHA309", "MHA306"), {**OPEN, "padding": ("",)}),
    Fault("softmax over heads", ("MHA204",), ("softmax",), ("MHA309",), {"form": ("open",), "heads": (4, 3, 2, 5), "padding": ("",), "causal": (False,)}),
    Fault("softmax over batch", ("MHA204",), ("softmax",), ("MHA601",), {"form": ("open",), "padding": ("",), "causal": (False,)}),
    Fault("no softmax", ("MHA205",), ("softmax", "score", "value"), (), {**OPEN, "padding": ("",), "causal": (False,)}),
    Fault("softmax twice", ("MHA206",), ("softmax", "softmax again"), ("MHA301", "MHA309"), OPEN),
    Fault("unstable softmax", ("MHA207",), ("softmax", "softmax again"), (), OPEN, silent=True),
    Fault("split by view", ("MHA104",), ("split",), (), {"form": ("open", "sdpa"), "heads": (4, 3, 2, 5), "padding": ("",), "causal": (False,), "same_values": True, "time_first": (False,)}),
    Fault("merge by view", ("MHA105",), ("merge",), ("MHA601",), {"form": ("open", "sdpa"), "heads": (4, 3, 2, 5), "time_first": (False,), "causal": (False,)}),
    Fault("over heads", ("MHA602",), ("split", "score", "value", "project"), (), {"form": ("sdpa",), "heads": (3, 2, 5), "cross": (False,), "padding": ("",), "causal": (False,), "time_first": (False,)}),
    Fault("no output projection", ("MHA101",), ("merge", "out", "value"), (), {"form": ("open", "loop", "sdpa"), "heads": (4, 3, 2, 5), "even_width": True, "same_values": True}, silent=True),
    Fault("output unused", ("MHA101", "MHA109"), ("merge", "out", "declared", "value"), ("MHA109", "MHA101"), {"form": ("open", "loop", "sdpa"), "heads": (4, 3, 2, 5), "even_width": True, "same_values": True, **STATED}, silent=True),
    Fault("value from key projection", ("MHA106",), ("project",), ("MHA109", "MHA107"), {"form": ("open", "sdpa"), "same_values": True, "heads": (3, 2, 5), **STATED}, silent=True),
    Fault("weights on keys", ("MHA106",), ("value",), ("MHA109", "MHA107"), {"form": ("open", "sdpa"), "same_values": True, "heads": (3, 2, 5), **STATED}),
    Fault("query and key shared", ("MHA107", "MHA106"), ("project",), (), {"form": ("open", "sdpa"), "heads": (3, 2, 5), "same_source": True, **STATED}, silent=True),
    Fault("mask after softmax", ("MHA301",), ("mask",), ("MHA309",), {**OPEN, "causal": (True,), "cross": (False,), "padding": ("",)}),
    Fault("triangle the wrong way", ("MHA302", "MHA309"), ("mask", "triangle"), ("MHA309", "MHA306"), {**OPEN, **LATER}),
    Fault("triangle off by one", ("MHA309",), ("mask", "triangle"), (), {**OPEN, **LATER}),
    Fault("no causal mask", ("MHA309",), ("mask", "score", "softmax", "value"), (), {"form": ("open", "loop", "sdpa"), **LATER}),
    Fault("padding inverted", ("MHA302",), ("mask",), ("MHA309", "MHA306"), PADDED),
    Fault("padding as number", ("MHA303",), ("mask",), (), {**OPEN, "padding": ("keep",)}),
    Fault("weak fill", ("MHA304",), ("mask",), ("MHA309",), {**OPEN, "padding": ("keep", "hide")}),
    Fault("mask discarded", ("MHA307",), ("mask",), ("MHA109",), {**OPEN, "padding": ("keep", "hide"), "causal": (False,)}),
    Fault("dropout always", ("MHA401",), ("dropout",), (), {**OPEN, "dropout": 0.2, **STATED}, silent=True),
    Fault("dropout on scores", ("MHA402",), ("dropout",), (), {**OPEN, "dropout": 0.2, **STATED}, silent=True),
    Fault("rotated values", ("MHA503",), ("rope",), (), {"form": ("open", "sdpa"), "cross": (False,), "even_head": True, "same_values": True, "packaging": ("class", "block")}),
    Fault("rotated on one side", ("MHA507",), ("rope",), (), {"form": ("open", "sdpa"), "cross": (False,), "even_head": True, "packaging": ("class", "block")}),
    Fault("groups tiled", ("MHA511",), ("repeat",), (), {"form": ("open", "sdpa"), "grouped": (2,), "same_values": True, "cross": (False,)}),
    Fault("values not from the source", ("MHA112", "MHA106"), ("project",), ("MHA109",), {"form": ("open", "sdpa"), "cross": (True,), "same_source": True, "padding": ("",), **STATED}),
)  # fmt: skip
