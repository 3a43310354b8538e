"""From the context to the output: heads merged, output projection."""

from __future__ import annotations

from tests.fuzz.layouts import moved
from tests.fuzz.plan import Plan
from tests.fuzz.stages import linear, projection_name


def merge(p: Plan, text: str, axes: str) -> None:
    """Write the merge of the heads and the output projection; ends with the local of the context."""
    y, h, dv = p.names["y"], p.size("h"), p.size("dv")
    if axes.startswith("x"):
        p.write(f"{y} = {text}.view(B, {h}, T, {dv})")
        axes = "bhqd"
    lead = "qb" if p.time_first else "bq"
    if p.is_fault("merge by view"):
        wanted = axes.replace("h", "").replace("d", "")
        if axes in ("bqhd", "qbhd"):  # cannot be wrong there: bring the heads in front first
            p.write(f"{y} = {moved(p, y, axes, 'bhqd')}")
            wanted = "bq"
        p.write(
            f"{y} = {y}.reshape({'B, T' if wanted == 'bq' or wanted[0] == 'b' else 'T, B'}, {h} * {dv})",
            "merge",
        )
        if wanted == "qb":
            p.write(f"{y} = {y}.transpose(0, 1)")
        output(p, y)
        return
    ways = ["reshape", "reshape", "flatten", "view", "cat", "einsum out"]
    if p.fault is not None and {"out", "merge"} & set(p.fault.marks):
        ways = ways[:4]
    if p.packaging == "function":
        ways = ways[:4]
    way = p.pick("merge", ways)
    if way == "einsum out":
        weight = p.attribute(
            projection_name(p, "o"),
            "nn.Parameter(torch.randn(<h>, <dv>, <d>) / math.sqrt(<h> * <dv>))",
        )
        p.write(f'{y} = torch.einsum("{axes},hdm->{lead}m", {y}, {weight})', "out")
        p.weights["o"] = (f"m.{projection_name(p, 'o')}", "0")
        _returned(p, y)
        return
    shape = f"{'T, B' if lead == 'qb' else 'B, T'}, {h} * {dv}"
    if way == "cat":
        at = axes.index("h")
        rest = axes.replace("h", "")
        heads = p.pick("heads", [f"{y}.unbind({at})", f"[{y}.select({at}, i) for i in range({h})]"])
        merged = (
            f"torch.cat({heads}, dim=-1)"
            if heads.startswith("[")
            else f"torch.cat(list({heads}), dim=-1)"
        )
        text = merged if rest == lead + "d" else f"{merged}.transpose(0, 1)"
        inner = "hd"
    else:
        inner = p.pick("merge order", ["hd", "hd", "hd", "dh"])
        turned = moved(p, y, axes, lead + inner)
        contiguous = f"{turned}.contiguous()"
        text = {
            "reshape": f"{turned}.reshape({shape})", "flatten": f"{turned}.flatten(2)",
            "view": f"{contiguous}.view({shape})",
        }[way]  # fmt: skip
    if p.choices.chance("merge apart"):
        p.write(f"{y} = {text}", "merge")
        text = y
    output(p, text, inner)


def output(p: Plan, text: str, inner: str = "hd") -> None:
    """Write the output projection and the return."""
    h, dv, d = p.heads, p.dv, p.width
    name = projection_name(p, "o")
    if p.is_fault("no output projection"):
        p.write(f"return {text}", "merge,out")
        return
    if p.is_fault("output unused"):
        read = linear(p, name, "<h> * <dv>", "<d>", bias=True, mark="declared")
        p.write(f"{p.names['y']} = {text}", "merge")
        if p.choices.chance("computed"):
            p.write(f"result = {read}({p.names['y']})", "out")
        p.write(f"return {p.names['y']}", "out")
        return
    view = f".view({h}, {dv}, {d})" if inner == "hd" else f".view({dv}, {h}, {d}).transpose(0, 1)"
    if p.packaging == "function" or p.choices.chance("matrix out", 5):
        read = p.attribute(
            name, "nn.Parameter(torch.randn(<h> * <dv>, <d>) * (<h> * <dv>) ** -0.5)"
        )
        _returned(p, p.pick("apply out", [f"{text} @ {read}", f"torch.matmul({text}, {read})"]))
        p.weights["o"] = (f"m.{name}{view}", "0")
        return
    bias = p.choices.chance("bias out")
    read = linear(p, name, "<h> * <dv>", "<d>", bias)
    p.weights["o"] = (
        f"m.{name}.weight.T.reshape({h * dv}, {d}){view}",
        f"m.{name}.bias" if bias else "0",
    )
    _returned(p, f"{read}({text})")


def _returned(p: Plan, text: str) -> None:
    weights = f", {p.names['w']}" if "weights returned" in p.extras else ""
    p.write(f"return {text}{weights}", "merge,out")
