"""The four forms of a module: written out, as a loop over heads, by SDPA, by nn.MultiheadAttention."""

from __future__ import annotations

from tests.fuzz.core import attend, fused
from tests.fuzz.endings import merge, output
from tests.fuzz.extras import before_scores, draw_extras
from tests.fuzz.masks import argument
from tests.fuzz.plan import Plan
from tests.fuzz.stages import COUNTS, project, projection_name, repeat, sizes, source, split


def write_forward(p: Plan) -> list[tuple[str, str]]:
    """Write forward; return its arguments and their values in the call."""
    given = argument(p)

    def order(length: int) -> str:
        return f"{length}, {p.batch}" if p.time_first else f"{p.batch}, {length}"

    arguments = [(p.names["x"], f"torch.randn({order(p.tq)}, {p.width})")]
    if p.cross:
        arguments.append((p.names["mem"], f"torch.randn({order(p.tk)}, {p.source_width})"))
    if given is not None:
        arguments.append(given)
    mask = None if given is None else given[0]
    if p.form == "module":
        _module(p, mask)
        return arguments
    sizes(p)
    if p.form == "loop":
        _loop(p, mask)
    else:
        _heads(p, mask)
    return arguments


def _heads(p: Plan, mask: str | None) -> None:
    made = project(p)
    if p.form == "sdpa":
        layout = k_layout = v_layout = "bhtd"
        if p.is_fault("over heads"):
            layout = k_layout = v_layout = "bthd"
    else:
        layouts = ["bhtd", "bhtd", "bthd", "hbtd", "xtd", "tbhd"]
        if p.is_fault("split by view", "softmax over heads", "softmax over batch"):
            layouts = ["bhtd"]
        layout = p.pick("layout", layouts)
        k_layout = v_layout = layout
        if (
            layout in ("bhtd", "hbtd", "xtd")
            and not p.is_fault("split by view")
            and p.choices.chance("keys turned", 4)
        ):
            k_layout = layout[:-2] + "dt"
    n = p.names
    draw_extras(p, layout)
    if p.extras & {"rope", "norms"}:
        k_layout = layout
    for role, target in (("q", layout), ("k", k_layout), ("v", v_layout)):
        grouped = role != "q" and p.kv_heads != p.heads
        folded = target if not grouped else target.replace("x", "bh")
        text = split(p, role, made[role], folded)
        if text != n[role]:
            p.write(f"{n[role]} = {text}", "split")
        before_scores(p, role, folded, "T" if role == "q" else "S")
        if grouped:
            again = repeat(p, n[role], folded, p.size(COUNTS[role][1]))
            if "x" in target:
                again = f"({again}).flatten(0, 1)"
            p.write(f"{n[role]} = {again}", "repeat")
    start = len(p.body)
    if p.form == "sdpa":
        fused(p, n["q"], n["k"], n["v"], mask)
        axes = "bhqd" if not p.is_fault("over heads") else "bqhd"
    else:
        _, axes = attend(p, n["q"], n["k"], n["v"], layout, k_layout, mask)
        axes = axes.replace("t", "q")
    p.core = (start, len(p.body))
    merge(p, n["y"], axes)


def _loop(p: Plan, mask: str | None) -> None:
    """Every head by itself: its own maps, or its slice of common ones."""
    n, h = p.names, p.size("h")
    own = p.choices.chance("own maps")
    made: dict[str, tuple[str, str]] = {}
    if own:
        for role in ("q", "k", "v"):
            _, channels = COUNTS[role]
            ins = "<dm>" if role != "q" and p.cross and p.source_width != p.width else "<d>"
            name = projection_name(p, role)
            p.attribute(
                name,
                f"nn.ModuleList([nn.Linear({ins}, <{channels}>, bias=False) for _ in range(<h>)])",
            )
            p.weights[role] = (f"torch.stack([l.weight for l in m.{name}])", "0")
    else:
        made = project(p)
        for role in ("q", "k", "v"):
            made[role] = (n[role], made[role][1])
    p.write("heads_out = []")
    p.write(f"for i in range({h}):")
    start = len(p.body)
    local = {"q": "qi", "k": "ki", "v": "vi"}
    for role in ("q", "k", "v"):
        channels = p.size(COUNTS[role][1])
        if own:
            text, axes = (
                f"self.{projection_name(p, role)}[i]({source(p, role)})",
                "tbd" if p.time_first else "btd",
            )
        else:
            whole, axes = made[role]
            if axes.endswith("c"):
                text = p.pick("slice", [
                    f"{whole}[..., i * {channels} : (i + 1) * {channels}]",
                    f"{whole}.narrow(-1, i * {channels}, {channels})",
                    f"{whole}.chunk({h}, dim=-1)[i]",
                ])  # fmt: skip
                axes = axes.replace("c", "d")
            else:
                text = f"{whole}.select({axes.index('h')}, i)"
                axes = axes.replace("h", "")
        if axes != "btd":
            order = ", ".join(str(axes.index(a)) for a in "btd")
            text = f"{text}.permute({order})"
        p.write(f"{local[role]} = {text}", "split")
    names = {role: p.names[role] for role in local}
    p.names.update(local)
    y, axes = attend(p, "qi", "ki", "vi", "btd", "btd", mask)
    p.names.update(names)
    if axes != "bqd":
        raise AssertionError(axes)
    p.write(f"heads_out.append({y})")
    p.body[start:] = [f"    {line}" for line in p.body[start:]]
    text = p.pick(
        "join", ["torch.cat(heads_out, dim=-1)", "torch.stack(heads_out, dim=2).flatten(2)"]
    )
    if p.time_first:
        text = f"{text}.transpose(0, 1)"
    p.write(f"{y} = {text}", "merge")
    output(p, y)


def _module(p: Plan, mask: str | None) -> None:
    """nn.MultiheadAttention."""
    n = p.names
    options = [] if p.time_first else ["batch_first=True"]
    if p.cross and p.source_width != p.width:
        options += ["kdim=<dm>", "vdim=<dm>"]
    if p.dropout:
        options.append(f"dropout={p.dropout}")
    bias = p.choices.chance("bias")
    if not bias:
        options.append("bias=False")
    name = p.pick(
        "module name", ["attn", "self_attn" if not p.cross else "cross_attn", "mix", "mha"]
    )
    read = p.attribute(name, f"nn.MultiheadAttention({', '.join(['<d>', '<h>', *options])})")
    kv = n["mem"] if p.cross else n["x"]
    arguments = [n["x"], kv, kv]
    if p.causal:
        p.write(f"T = {n['x']}.shape[{0 if p.time_first else 1}]")
        p.write(p.pick("square", [
            "later = torch.ones(T, T, dtype=torch.bool).triu(1)",
            "later = torch.arange(T)[:, None] < torch.arange(T)",
            'later = torch.full((T, T), float("-inf")).triu(1)' if p.padding == "" else "later = torch.ones(T, T).triu(1) == 1",
        ]))  # fmt: skip
        arguments.append("attn_mask=later")
    if mask is not None:
        if p.padding == "additive":
            kind = "attn_mask" if p.names["mask axes"] == "qk" else "key_padding_mask"
            if kind == "attn_mask" and p.causal:
                arguments[-1] = (
                    f"attn_mask=later + {mask}"
                    if "inf" in p.body[-1]
                    else f'attn_mask={mask}.masked_fill(later, float("-inf"))'
                )
            elif p.causal and "inf" not in p.body[-1]:
                arguments[-1] = 'attn_mask=torch.zeros(T, T).masked_fill(later, float("-inf"))'
                arguments.append(f"{kind}={mask}")
            else:
                arguments.append(f"{kind}={mask}")
        else:
            arguments.append(f"key_padding_mask={mask if p.padding == 'hide' else '~' + mask}")
    arguments += p.choices.pick(
        "need", [[], ["need_weights=False"], ["average_attn_weights=False"]]
    )
    p.write(f"{n['y']}, _ = {read}({', '.join(arguments)})")
    p.write(f"return {n['y']}")
    h, dk, d, dm = p.heads, p.dk, p.width, p.source_width
    m = f"m.{name}"
    for i, role in enumerate("qkv"):
        part = f"{m}.in_proj_weight.chunk(3)[{i}]" if dm == d else f"{m}.{role}_proj_weight"
        p.weights[role] = (
            f"{part}.view({h}, {dk}, {d if role == 'q' else dm})",
            f"{m}.in_proj_bias.chunk(3)[{i}].view({h}, {dk})" if bias else "0",
        )
    p.weights["o"] = (
        f"{m}.out_proj.weight.T.reshape({h}, {dk}, {d})",
        f"{m}.out_proj.bias" if bias else "0",
    )
