"""Compose the text of a module from random parts, with the weights that a reference needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.fuzz.choices import Choices
from tests.fuzz.faults import Fault
from tests.fuzz.forms import write_forward
from tests.fuzz.plan import CAUSAL_CLASSES, CLASSES, Plan, draw_plan

MARK = re.compile(r"\s*#@([\w ,]+)$")
STATED = {"scale by width", "scale by heads", "scale by length", "scale not rooted", "scale multiplied", "scale twice", "no scale", "scale after softmax"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A module as text, how to build and call it, what is planted where, and its plan."""

    text: str
    name: str
    build: str
    call: str
    expect: tuple[str, ...]
    fault: Fault | None
    lines: tuple[int, ...]
    plan: Plan
    attention: str
    """The attention itself as text of `m`, the built module."""

    @property
    def source(self) -> str:
        """Return the whole file, with all that is needed to see it again."""
        told = [f"# build: {self.build}", f"# call: {self.call}"]
        told += [f"# contract: {e}" for e in self.expect]
        if self.fault is not None:
            told.append(
                f"# fault: {self.fault.name}: {' or '.join(self.fault.codes)} at {self.lines}"
            )
        return "\n".join([self.text, "", *told, ""])


def compose(choices: Choices) -> Case:
    """Return the case that `choices` make."""
    p = draw_plan(choices)
    arguments = write_forward(p)
    fault = p.fault
    if p.causal and (fault is not None or choices.chance("causal stated")):
        p.expect.append("causal")
    if p.kv_heads not in (1, p.heads) and (fault is not None or choices.chance("groups stated")):
        p.expect.append("gqa=blocked")
    if fault is not None and fault.name in STATED:
        p.expect.append("scale=sqrt")
    if fault is not None and "MHA112" in fault.codes:
        p.expect.append("cross")
    text, name, build, call, inner = (
        _function(p, arguments) if p.packaging == "function" else _module(p, arguments)
    )
    lines: list[str] = []
    marks: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = MARK.search(line)
        if found:
            for mark in found[1].split(","):
                marks.setdefault(mark, []).append(number)
            line = line[: found.start()]
        lines.append(line)
    planted = sorted({n for m in (fault.marks if fault else ()) for n in marks.get(m, [])})
    return Case(
        "\n".join(lines) + "\n", name, build, call, tuple(p.expect), fault, tuple(planted), p, inner
    )


def _head(p: Plan) -> list[str]:
    lines = ["import math", "", "import torch", "import torch.nn.functional as F"]
    return [*lines, *sorted(p.imports), "from torch import nn", "", ""]


def _sizes(p: Plan) -> dict[str, tuple[str, int | None]]:
    """Map each size token to the text of __init__ and the number that the build gives, if any."""
    n, h = p.names, p.heads
    found: dict[str, tuple[str, int | None]] = {"d": (n["d"], p.width), "h": (n["h"], h)}
    found["g"] = found["h"] if p.kv_heads == h else (n["g"], p.kv_heads)
    found["dk"] = (f"({n['d']} // {n['h']})", None) if p.width == h * p.dk else (n["dk"], p.dk)
    found["dv"] = found["dk"] if p.dv == p.dk else (n["dv"], p.dv)
    found["dm"] = found["d"] if p.source_width == p.width else ("source_width", p.source_width)
    return found


def _resolve(text: str, sizes: dict[str, tuple[str, int | None]]) -> str:
    text = re.sub(r"<(h|g|dk|dv)>\d+(?![\w>])", r"<\1>", text)
    return re.sub(r"<(d|h|g|dk|dv|dm)>", lambda m: sizes[m[1]][0], text)


def _module(p: Plan, arguments: list[tuple[str, str]]) -> tuple[str, str, str, str, str]:
    sizes = _sizes(p)
    given: list[tuple[str, int]] = []
    for text, number in sizes.values():
        if number is not None and (text, number) not in given:
            given.append((text, number))
    name = p.pick("class", CAUSAL_CLASSES if p.causal else CLASSES)
    free: list[str] = []
    body = p.body
    if p.packaging == "free":
        free, body = _free(p)
    lines = [*_head(p), *free, f"class {name}(nn.Module):"]
    lines += [
        f"    def __init__(self, {', '.join(t for t, _ in given)}):",
        "        super().__init__()",
    ]
    for attribute, value in p.init:
        value = _resolve(value, sizes)
        if attribute.startswith("buffer "):
            value, mark, tail = value.partition("  #@")
            lines.append(
                f'        self.register_buffer("{attribute.removeprefix("buffer ")}", {value}){mark}{tail}'
            )
        else:
            lines.append(f"        self.{attribute} = {value}")
    parameters = ", ".join(["self", *(a for a, _ in arguments)])
    lines += ["", f"    def forward({parameters}):", *(f"        {line}" for line in body)]
    values = ", ".join(v for _, v in arguments)
    numbers = ", ".join(str(v) for _, v in given)
    if p.packaging != "block":
        return "\n".join(lines), name, f"{name}({numbers})", values, "m"
    outer = p.pick("block", ["Block", "EncoderLayer" if not p.causal else "DecoderLayer", "Stage"])
    d, x = p.names["d"], p.names["x"]
    before = p.choices.chance("norm before")
    rest = "".join(f", {a}" for a, _ in arguments[1:])
    p.names["residual"] = "before" if before else "after"
    lines += [
        "", "", f"class {outer}(nn.Module):", f"    def __init__(self, {', '.join(t for t, _ in given)}):",
        "        super().__init__()", f"        self.norm = nn.LayerNorm({d})",
        f"        self.inner = {name}({', '.join(t for t, _ in given)})", "", f"    def forward({parameters}):",
        f"        return {x} + self.inner(self.norm({x}){rest})" if before
        else f"        return self.norm({x} + self.inner({x}{rest}))",
    ]  # fmt: skip
    return "\n".join(lines), outer, f"{outer}({numbers})", values, "m.inner"


def _free(p: Plan) -> tuple[list[str], list[str]]:
    """Move the core into a function of its own; return it and the rest of forward."""
    start, end = p.core
    core = p.body[start:end]
    whole = "\n".join(core)
    attributes = list(dict.fromkeys(re.findall(r"self\.(\w+)", whole)))
    if not attributes and start == end:
        return [], p.body
    known = [p.names[r] for r in ("q", "k", "v")] + ["B", "T", "S"]
    known += [name for name in p.names.get("mask name", "").split() if name]
    used = [k for k in dict.fromkeys(known) if re.search(rf"(?<![\w.\"]){k}\b", whole)]
    renamed = [f"{a}_" if a in used or a in p.names.values() else a for a in attributes]
    for old, new in zip(attributes, renamed, strict=True):
        core = [re.sub(rf"self\.{old}\b", new, line) for line in core]
    name, y = p.pick("free name", ["attend", "core", "scaled_dot_product", "mix"]), p.names["y"]
    lines = [f"def {name}({', '.join([*used, *renamed])}):", *(f"    {line}" for line in core)]
    lines += [f"    return {y}", "", ""]
    call = f"{y} = {name}({', '.join([*used, *(f'self.{a}' for a in attributes)])})"
    return lines, [*p.body[:start], call, *p.body[end:]]


def _function(p: Plan, arguments: list[tuple[str, str]]) -> tuple[str, str, str, str, str]:
    """The whole as a function of tensors: weights and sizes are arguments."""
    numbers = {
        "d": p.width,
        "h": p.heads,
        "g": p.kv_heads,
        "dk": p.dk,
        "dv": p.dv,
        "dm": p.source_width,
    }
    known = {key: (str(value), value) for key, value in numbers.items()}
    given = []
    for attribute, value in p.init:
        value = _resolve(re.sub(r"<\w+>(\d+)$", r"\1", value), dict(known))
        given.append((attribute, re.sub(r"^nn\.Parameter\((.*)\)$", r"\1", value)))
    given.sort(key=lambda pair: not pair[1].startswith("torch"))
    name = p.pick("function", ["attention", "multi_head", "forward_heads", "f"])
    body = [re.sub(r"self\.(\w+)", r"\1", line) for line in p.body]
    parameters = ", ".join([a for a, _ in arguments] + [a for a, _ in given])
    lines = [*_head(p), f"def {name}({parameters}):", *(f"    {line}" for line in body)]
    call = ", ".join([v for _, v in arguments] + [v for _, v in given])
    return "\n".join(lines), name, name, call, "m"
