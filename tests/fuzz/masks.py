"""Masks: where they come from, and how they are laid on the scores."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.layouts import aligned
from tests.fuzz.plan import Plan

NAMES = {
    "keep": ("mask", "valid", "keep", "attention_mask", "m0"),
    "hide": ("key_padding_mask", "padded", "pad_mask", "mask", "m0"),
    "additive": ("attn_mask", "bias", "additive", "m0"),
    "lengths": ("lengths", "n0"),
}


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask as text, with its axes of "bqk", and its sense: "keep", "hide" or "add"."""

    text: str
    axes: str
    sense: str
    triangle: bool = False


def argument(p: Plan) -> tuple[str, str] | None:
    """Return the name of the mask argument and the text of its value in the call."""
    if not p.padding:
        return None
    name = p.names["mask name"] = p.pick("mask name", NAMES[p.padding])
    ends = [p.tk - 1, p.tk - 3, 2][: p.batch]
    if not p.is_fault("padding inverted") and p.choices.chance("one full"):
        ends[0] = p.tk
    columns = ", ".join(f"[{e}]" for e in ends)
    keep = f"torch.arange({p.tk}) < torch.tensor([{columns}])"
    if p.padding == "lengths":
        return name, f"torch.tensor([{', '.join(map(str, ends))}])"
    if p.padding == "additive":
        p.names["mask axes"] = p.pick("mask axes", ["qk", "bk"])
        if p.names["mask axes"] == "qk":
            return name, f"torch.randn({p.tq}, {p.tk})"
        fill = p.pick("fill of call", ['float("-inf")', "-1e9"])
        return (
            name,
            f"torch.zeros({p.batch}, {p.tk}).masked_fill(torch.arange({p.tk}) >= torch.tensor([{columns}]), {fill})",
        )
    if p.fault is not None or p.choices.chance("polarity stated"):
        p.expect.append(f"mask={p.padding}")
    if p.padding == "keep":
        return name, keep
    return name, f"torch.arange({p.tk}) >= torch.tensor([{columns}])"


def masks(p: Plan, name: str | None) -> list[Mask]:
    """Return the masks of the plan; may write lines that make them."""
    found = []
    if p.causal and not p.is_fault("no causal mask"):
        found.append(triangle(p))
    if name is None:
        return found
    if p.padding == "lengths":
        order = f"torch.arange(S, device={name}.device)"
        text = p.pick(
            "lengths", [f"{order}[None, :] < {name}[:, None]", f"{order} >= {name}.unsqueeze(1)"]
        )
        p.write(f"real = {text}")
        found.append(Mask("real", "bk", "keep" if "<" in text else "hide"))
    elif p.padding == "additive":
        found.append(Mask(name, p.names["mask axes"], "add"))
    else:
        sense = p.padding
        if p.is_fault("padding inverted"):
            sense = "hide" if sense == "keep" else "keep"
        found.append(Mask(name, "bk", sense))
    return found


def triangle(p: Plan) -> Mask:
    """Return the causal mask."""
    ones = "torch.ones(T, T, dtype=torch.bool)"
    off = 1 if p.is_fault("triangle off by one") else 0
    wrong = p.is_fault("triangle the wrong way")
    up, low = ("tril", "triu") if wrong else ("triu", "tril")
    more = -1 if wrong else 1 + off
    less = off
    hidden = [
        f"{ones}.{up}({more})",
        f"torch.{up}({ones}, diagonal={more})",
        f"torch.ones(T, T).{up}({more}).bool()",
        f"torch.{up}(torch.ones(T, T), diagonal={more}) == 1",
    ]
    kept = [
        f"{ones}.{low}({less})",
        f"torch.{low}({ones}, diagonal={less})",
        f"torch.{low}(torch.ones(T, T), {less}) > 0",
    ]
    sense = p.pick("triangle", ["hide", "keep", "arange", "add", "buffer keep", "buffer hide"])
    if p.packaging == "function" and sense.startswith("buffer"):
        sense = sense.removeprefix("buffer ")
    if sense == "arange":
        p.write("places = torch.arange(T)")
        sign = "<" if wrong else ">"
        shift = " + 1" if off else ""
        p.write(f"later = places[None, :] {sign} places[:, None]{shift}", "triangle")
        return Mask("later", "qk", "hide", True)
    if sense == "add":
        ways = [
            f'torch.full((T, T), float("-inf")).{up}({more})',
            f"torch.zeros(T, T).masked_fill({hidden[0]}, -1e9)",
        ]
        if not wrong and not off:
            ways.append("nn.Transformer.generate_square_subsequent_mask(T)")
        p.write(f"triangle = {p.pick('added triangle', ways)}", "triangle")
        return Mask("triangle", "qk", "add", True)
    if sense.startswith("buffer"):
        sense = sense.removeprefix("buffer ")
        way = p.pick(
            "kept triangle" if sense == "keep" else "hidden triangle",
            kept if sense == "keep" else hidden,
        )
        read = p.attribute("buffer tri", way.replace("T, T", "64, 64") + "  #@triangle")
        return Mask(f"{read}[:T, :T]", "qk", sense, True)
    way = p.pick(
        "kept triangle" if sense == "keep" else "hidden triangle",
        kept if sense == "keep" else hidden,
    )
    p.write(f"triangle = {way}", "triangle")
    return Mask("triangle", "qk", sense, True)


def spread(p: Plan, mask: Mask, axes: str) -> str:
    """Return the mask so that it broadcasts over scores with `axes`."""
    if "x" in axes and "b" in mask.axes:
        text = p.pick("fold mask", [
            f"{mask.text}.repeat_interleave({p.size('h')}, dim=0)",
            f"{mask.text}[:, None, :].expand(-1, {p.size('h')}, -1).reshape(B * {p.size('h')}, S)",
        ])  # fmt: skip
        return aligned(text, mask.axes.replace("b", "x"), axes)
    return aligned(
        mask.text if mask.text.isidentifier() or "[" in mask.text else f"({mask.text})",
        mask.axes,
        axes,
    )


def lay(p: Plan, mask: Mask, scores: str, axes: str) -> None:
    """Write the line that lays `mask` on `scores`."""
    text = spread(p, mask, axes)
    planted = (
        p.fault is not None
        and "mask" in p.fault.marks
        and (
            mask.triangle
            or not p.causal
            or "padding" in p.fault.name
            or p.fault.name in ("weak fill", "mask discarded")
        )
    )
    mark = "mask" if planted else ""
    if mask.sense == "add":
        p.write(
            p.pick(
                "add mask", [f"{scores} = {scores} + {text}", f"{scores} = {scores}.add({text})"]
            ),
            mark,
        )
        return
    if p.is_fault("padding as number") and not mask.triangle:
        p.write(
            p.pick(
                "number",
                [
                    f"{scores} = {scores} + {text}",
                    f"{scores} = {scores} + {text}.float()",
                    f"{scores} = {scores} * {text}",
                ],
            ),
            mark,
        )
        return
    weak = p.is_fault("weak fill") and not mask.triangle
    fill = p.pick(
        "fill", ['float("-inf")', "-torch.inf", "-1e9", "torch.finfo(SCORES.dtype).min", "-1e20"]
    )
    fill = fill.replace("SCORES", scores)
    if weak:
        fill = p.pick("weak fill", ["-1e-9", "1e-9", "0.0"])
    hide = (
        text
        if mask.sense == "hide"
        else p.pick("turn", [f"~{text}", f"{text}.logical_not()", f"{text} == 0"])
    )
    keep = (
        text
        if mask.sense == "keep"
        else p.pick("turn", [f"~{text}", f"{text}.logical_not()", f"{text} == 0"])
    )
    if p.is_fault("mask discarded") and not mask.triangle:
        p.write(f"{scores}.masked_fill({hide}, {fill})", mark)
        return
    ways = [
        f"{scores} = {scores}.masked_fill({hide}, {fill})",
        f"{scores}.masked_fill_({hide}, {fill})",
        f"{scores} = torch.where({keep}, {scores}, {fill})",
        f"{scores} = torch.masked_fill({scores}, {hide}, {fill})",
    ]
    if not weak:
        ways += [
            f"{scores} = {scores} + torch.zeros_like({scores}).masked_fill({hide}, -1e9)",
            f"{scores} = {scores} + (1.0 - ({keep}).float()) * -1e9",
            f"{scores} = {scores} - 1e9 * ({hide}).float()",
        ]
    p.write(p.pick("lay", ways), mark)
