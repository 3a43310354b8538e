"""From the inputs to q, k and v: projections, split into heads, groups repeated."""

from __future__ import annotations

from tests.fuzz.layouts import moved
from tests.fuzz.plan import Plan

COUNTS = {"q": ("h", "dk"), "k": ("g", "dk"), "v": ("g", "dv")}


def sizes(p: Plan) -> None:
    """Write the lines that read the batch size and the lengths."""
    x, mem = p.names["x"], p.names["mem"]
    order = "T, B, _" if p.time_first else "B, T, _"
    axis = 1 - int(p.time_first)
    p.write(
        p.pick("sizes", [
            f"{order} = {x}.shape",
            f"B, T = {x}.size({1 - axis}), {x}.size({axis})",
            f"{order} = {x}.size()",
        ])
    )  # fmt: skip
    if p.cross and not p.is_fault("values not from the source"):
        p.write(p.pick("source length", [f"S = {mem}.shape[{axis}]", f"S = {mem}.size({axis})"]))
    else:
        p.write("S = T")


def source(p: Plan, role: str) -> str:
    """Return the tensor that `role` is projected from."""
    if role == "q" or not p.cross or p.is_fault("values not from the source"):
        return p.names["x"]
    return p.names["mem"]


def _width(p: Plan, role: str) -> str:
    return "<d>" if role == "q" or not p.cross or p.source_width == p.width else "<dm>"


def _counts(role: str) -> tuple[str, str]:
    heads, channels = COUNTS[role]
    return f"<{heads}>", f"<{channels}>"


def _numbers(p: Plan, role: str) -> tuple[int, int, int]:
    heads = p.heads if role == "q" else p.kv_heads
    return (
        heads,
        p.dv if role == "v" else p.dk,
        p.width if _width(p, role) == "<d>" else p.source_width,
    )


def linear(p: Plan, name: str, ins: str, outs: str, bias: bool, mark: str = "") -> str:
    """Declare a linear map."""
    end = "" if bias else ", bias=False"
    return p.attribute(name, f"nn.Linear({ins}, {outs}{end})" + (f"  #@{mark}" if mark else ""))


def project(p: Plan) -> dict[str, tuple[str, str]]:
    """Write the projections; return the text and the axes of q, k and v.

    Axes: "btc" (channels not split yet), or those of a tensor that is split already.
    """
    fused = not p.cross and p.kv_heads == p.heads and p.dk == p.dv
    ways = ["separate", "separate", "matrix", "einsum"]
    if p.cross or p.kv_heads != p.heads or p.dk != p.dv:
        ways.append("kv")
    if fused:
        ways += ["fused", "fused", "fused split"]
    elif not p.cross:
        ways.append("parts")
    if p.fault is not None and "project" in p.fault.marks:
        ways = ["separate"]
    if p.is_fault("split by view"):
        ways = ["separate", "parts", "fused"] if fused else ["separate"]
    if p.packaging == "function":
        ways = ["matrix"]
    way = p.pick("projections", ways)
    if way == "fused split":
        return _fused_split(p)
    if way in ("fused", "parts"):
        return _parts(p, "qkv", ["q", "k", "v"])
    if way == "kv":
        return {"q": _one(p, "q", "separate"), **_parts(p, "kv", ["k", "v"])}
    return {role: _one(p, role, way) for role in ("q", "k", "v")}


def _flat(p: Plan) -> str:
    return "tbc" if p.time_first else "btc"


def _one(p: Plan, role: str, way: str) -> tuple[str, str]:
    local, x = p.names[role], source(p, role)
    used = role
    if role == "v" and p.is_fault("value from key projection"):
        used = "k"
    if role == "k" and p.is_fault("query and key shared"):
        used = "q"
    name = projection_name(p, used)
    heads, channels, ins = _numbers(p, role)
    count = " * ".join(_counts(role))
    if way == "separate" and p.fault is None and p.choices.chance("convolution", 8):
        read = p.attribute(name, f"nn.Conv1d({_width(p, role)}, {count}, 1, bias=False)")
        order = "1, 2, 0" if p.time_first else "0, 2, 1"
        back = "2, 0, 1" if p.time_first else "0, 2, 1"
        p.write(f"{local} = {read}({x}.permute({order})).permute({back})", "project")
        p.weights[role] = (f"m.{name}.weight.view({heads}, {channels}, {ins})", "0")
        return local, _flat(p)
    if way == "separate":
        bias = p.choices.chance("bias")
        read = linear(p, name, _width(p, role), count, bias)
        if used != role and used == "k":
            linear(p, projection_name(p, role), _width(p, role), count, bias)
        bias = dict(p.init)[name].endswith(")") and "bias=False" not in dict(p.init)[name]
        p.write(f"{local} = {read}({x})", "project")
        weight = f"m.{name}.weight.view({heads}, {channels}, {ins})"
        p.weights[role] = (weight, f"m.{name}.bias.view({heads}, {channels})" if bias else "0")
        return local, _flat(p)
    if way == "matrix":
        across = p.choices.chance("out first")
        shape = f"{count}, {_width(p, role)}" if across else f"{_width(p, role)}, {count}"
        read = p.attribute(name, f"nn.Parameter(torch.randn({shape}) * {_width(p, role)} ** -0.5)")
        ways = (
            [f"F.linear({x}, {read})", f"{x} @ {read}.T", f"torch.matmul({x}, {read}.t())"]
            if across
            else [
                f"{x} @ {read}",
                f"torch.matmul({x}, {read})",
                f'torch.einsum("abc,cd->abd", {x}, {read})',
            ]
        )
        p.write(f"{local} = {p.pick('apply', ways)}", "project")
        turned = "" if across else ".T"
        p.weights[role] = (f"m.{name}{turned}.reshape({heads}, {channels}, {ins})", "0")
        return local, _flat(p)
    parts = ", ".join(_counts(role))
    read = p.attribute(
        name,
        f"nn.Parameter(torch.randn({parts}, {_width(p, role)}) / math.sqrt({_width(p, role)}))",
    )
    target = p.pick("einsum to", ["bhtd", "bthd", "hbtd"])
    flat = _flat(p).replace("c", "m")
    p.write(f'{local} = torch.einsum("{flat},hdm->{target}", {x}, {read})', "project")
    p.weights[role] = (f"m.{name}", "0")
    return local, target


def projection_name(p: Plan, role: str) -> str:
    """Return the name of the projection of `role`."""
    return p.names[f"{role} projection"]


def _parts(p: Plan, name: str, roles: list[str]) -> dict[str, tuple[str, str]]:
    """One map for several roles, cut along the channels."""
    bias = p.choices.chance("bias")
    x = source(p, roles[-1])
    numbers = [_numbers(p, r) for r in roles]
    counts = [" * ".join(_counts(r)) for r in roles]
    equal = len(set(counts)) == 1
    total = f"{len(roles)} * {counts[0]}" if equal else " + ".join(counts)
    attribute = projection_name(p, name)
    read = linear(p, attribute, _width(p, roles[-1]), total, bias)
    locals_ = ", ".join(p.names[r] for r in roles)
    sizes_ = []
    for r in roles:
        heads, channels = COUNTS[r]
        sizes_.append(f"{p.size(heads)} * {p.size(channels)}")
    whole = f"{read}({x})"
    ways = [
        f"{whole}.split([{', '.join(sizes_)}], dim=-1)",
        f"torch.split({whole}, ({', '.join(sizes_)}), -1)",
    ]
    if equal:
        ways = [
            f"{whole}.chunk({len(roles)}, dim=-1)",
            f"torch.tensor_split({whole}, {len(roles)}, dim=-1)",
            *ways,
        ]
        ways.append(f"{whole}.unflatten(-1, ({len(roles)}, -1)).unbind(-2)")
    p.write(f"{locals_} = {p.pick('cut', ways)}", "project")
    start = 0
    for role, (heads_, channels_, ins) in zip(roles, numbers, strict=True):
        end = start + heads_ * channels_
        weight = f"m.{attribute}.weight[{start}:{end}].view({heads_}, {channels_}, {ins})"
        p.weights[role] = (
            weight,
            f"m.{attribute}.bias[{start}:{end}].view({heads_}, {channels_})" if bias else "0",
        )
        start = end
    return {r: (p.names[r], _flat(p)) for r in roles}


def _fused_split(p: Plan) -> dict[str, tuple[str, str]]:
    """One map for q, k and v, whose channels are ordered in any of the usual ways."""
    bias = p.choices.chance("bias")
    attribute, x = projection_name(p, "qkv"), p.names["x"]
    read = linear(p, attribute, "<d>", "3 * <h> * <dk>", bias)
    order = p.pick("channel order", ["3hd", "h3d", "hd3", "3dh", "d3h"])
    known = {"3": "3", "h": p.size("h"), "d": p.size("dk")}
    numbers = {"3": 3, "h": p.heads, "d": p.dk}
    shape = ", ".join(known[a] for a in order)
    lead = "T, B" if p.time_first else "B, T"
    whole = p.pick("to axes", [
        f"{read}({x}).view({lead}, {shape})",
        f"{read}({x}).reshape({lead}, {shape})",
        f"{read}({x}).unflatten(-1, ({shape}))",
    ])  # fmt: skip
    axes = _flat(p)[:2] + order
    target = p.pick("qkv to", ["3bhtd", "3bthd", "3hbtd"])
    local = ", ".join(p.names[r] for r in "qkv")
    if p.choices.chance("unbind in place") and "3" in order:
        rest = axes.replace("3", "")
        p.write(f"{local} = {whole}.unbind({axes.index('3')})", "project")
        target = rest
    else:
        p.write(f"qkv = {moved(p, whole, axes, target)}", "project")
        p.write(
            p.pick(
                "unpack",
                [f"{local} = qkv", f"{local} = qkv[0], qkv[1], qkv[2]", f"{local} = qkv.unbind(0)"],
            )
        )
        target = target[1:]
    shape_ = ", ".join(str(numbers[a]) for a in order)
    for n, role in enumerate("qkv"):
        at = order.index("3")
        back = ".transpose(0, 1)" if order.index("d") < order.index("h") else ""
        p.weights[role] = (
            f"m.{attribute}.weight.view({shape_}, {p.width}).select({at}, {n}){back}",
            f"m.{attribute}.bias.view({shape_}).select({at}, {n}){back}" if bias else "0",
        )
    return {r: (p.names[r], target) for r in "qkv"}


def split(p: Plan, role: str, made: tuple[str, str], target: str) -> str:
    """Return the text that brings the tensor `made` (text, axes) to axes `target`.

    Target axes: "bhtd" in any order; "x" is samples and heads folded into one axis.
    """
    text, axes = made
    heads, channels = (p.size(c) for c in COUNTS[role])
    length = "T" if role == "q" else "S"
    wanted = target.replace("x", "bh")
    if axes.endswith("c"):
        lead = axes[:2]
        if p.is_fault("split by view"):
            shape = {"b": "B", "h": heads, "t": length, "d": channels}
            if wanted == "bthd":
                wanted = "bhtd"
            text = (
                p.pick("view", [f"{text}.reshape", f"{text}.contiguous().view"])
                + f"({', '.join(shape[a] for a in wanted)})"
            )
            return text if "x" not in target else f"{text}.flatten(0, 1)"
        inner = "hd"
        shape_ = f"{'B, ' if lead == 'bt' else ''}{length}{', B' if lead == 'tb' else ''}, {heads}"
        ways = [
            f"{text}.view({shape_}, {channels})", f"{text}.reshape({shape_}, {channels})",
            f"{text}.unflatten(-1, ({heads}, {channels}))", f"{text}.view({shape_}, -1)",
        ]  # fmt: skip
        if wanted in ("bhtd", "hbtd") and lead == "bt":
            at = wanted.index("h")
            ways += [
                f"torch.stack({text}.chunk({heads}, dim=-1), dim={at})",
                f"torch.stack({text}.split({channels}, dim=-1), {at})",
                f"torch.cat([t.unsqueeze({at}) for t in {text}.chunk({heads}, -1)], dim={at})",
            ]
        text = p.pick("split", ways)
        axes = lead + inner
        if text.startswith("torch."):
            axes = wanted
    text = moved(p, text, axes, wanted)
    if "x" in target:
        text = p.pick(
            "fold",
            [
                f"{text}.reshape(B * {heads}, {', '.join(length if a == 't' else channels for a in target[1:])})",
                f"{text}.flatten(0, 1)",
            ],
        )
    return text


def repeat(p: Plan, text: str, axes: str, channels: str) -> str:
    """Return `text`, axes with "h" as the groups, repeated for every query head."""
    at = axes.index("h")
    times = f"{p.size('h')} // {p.size('g')}"
    tiles = ["1"] * 4
    tiles[at] = times
    if p.is_fault("groups tiled"):
        ways = [f"{text}.repeat({', '.join(tiles)})", f"torch.cat([{text}] * ({times}), dim={at})"]
        return p.pick("tile", ways)
    whole = {"b": "B", "h": p.size("h"), "t": "S", "d": channels}
    index = ", ".join([":"] * (at + 1) + ["None"])
    spread = ["-1"] * 5
    spread[at + 1] = times
    ways = [
        f"{text}.repeat_interleave({times}, dim={at})",
        f"torch.repeat_interleave({text}, {times}, {at})",
        f"{text}[{index}].expand({', '.join(spread)}).reshape({', '.join(whole[a] for a in axes)})",
        f"torch.stack([{text}] * ({times}), dim={at + 1}).flatten({at}, {at + 1})",
    ]
    if p.kv_heads == 1:
        ways.append(f"{text}.expand({', '.join(p.size('h') if a == 'h' else '-1' for a in axes)})")
    return p.pick("repeat", ways)
