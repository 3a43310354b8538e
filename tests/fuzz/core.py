"""From q, k and v to the context: scores, scale, masks, softmax, dropout, values."""

from __future__ import annotations

from tests.fuzz.extras import on_scores, window
from tests.fuzz.layouts import einsum
from tests.fuzz.masks import Mask, lay, masks, spread
from tests.fuzz.plan import Plan

SCALE_FAULTS = {
    "scale by width": "width", "scale by heads": "heads", "scale by length": "length",
    "scale not rooted": "dk", "scale multiplied": "dk", "scale twice": "dk",
}  # fmt: skip


def factor(p: Plan) -> str:
    """Return the factor of the scores as text, right or not."""
    dk = p.size("dk")
    q = p.names["q"]
    if p.is_fault("scale by width"):
        wide = p.attribute(p.names["d"], "<d>")
        return p.pick("factor", [f"{wide} ** -0.5", f"1.0 / math.sqrt({wide})"])
    if p.is_fault("scale by heads"):
        return p.pick("factor", [f"{p.size('h')} ** -0.5", f"1 / math.sqrt({p.size('h')})"])
    if p.is_fault("scale by length"):
        return p.pick("factor", ["S ** -0.5", "1 / math.sqrt(S)"])
    if p.is_fault("scale not rooted"):
        return p.pick("factor", [f"(1.0 / {dk})", f"{dk} ** -1.0"])
    if p.is_fault("scale multiplied"):
        return p.pick("factor", [f"{dk} ** 0.5", f"math.sqrt({dk})"])
    ways = [f"{dk} ** -0.5", f"(1.0 / math.sqrt({dk}))", f"pow({dk}, -0.5)"]
    if "t" in p.names["q axes"] and p.packaging != "function":
        ways.append(p.attribute("scale", "<dk> ** -0.5"))
        ways.append(p.attribute("buffer factor", "torch.tensor(float(<dk>)).rsqrt()"))
    at = p.names["q axes"].index("d")
    ways += [
        f"{q}.size({at}) ** -0.5",
        f"torch.rsqrt(torch.tensor({dk}, dtype={q}.dtype))",
        f"(1 / math.sqrt({q}.shape[{at}]))",
    ]
    chosen = p.pick("factor", ways)
    drop_unused(p, chosen)
    return chosen


def drop_unused(p: Plan, chosen: str) -> None:
    """Take attributes back that were offered and not chosen."""
    p.init[:] = [
        (n, v) for n, v in p.init
        if n not in ("scale", "buffer factor") or chosen == f"self.{n.removeprefix('buffer ')}"
    ]  # fmt: skip


def scale(p: Plan, text: str, factor_: str) -> str:
    """Return `text` times the factor."""
    ways = [f"{text} * {factor_}", f"{factor_} * {text}", f"{text}.mul({factor_})"]
    if p.is_fault("scale by length", "scale by width", "scale by heads"):
        ways = ways[:1]
    if factor_.startswith("(1.0 / ") and factor_.endswith(")"):
        inner = factor_.removeprefix("(1.0 / ").removesuffix(")")
        ways += [f"{text} / {inner}", f"{text}.div({inner})"]
    return p.pick("scale", ways)


def attend(
    p: Plan, q: str, k: str, v: str, axes: str, k_axes: str, mask: str | None
) -> tuple[str, str]:
    """Write the open form; return the context and its axes. `axes`: those of q, with "t"."""
    n = p.names
    n["q axes"] = axes
    given = masks(p, mask)
    s, w = n["s"], n["w"]
    place = p.pick("scale on", ["scores", "scores", "q", "k", "both", "in line"])
    unscaled = p.is_fault("no scale", "scale after softmax")
    if p.fault is not None and "scale" in p.fault.marks and place in ("both", "k"):
        place = "scores"
    f = "" if unscaled else factor(p)
    if not unscaled and place in ("q", "k"):
        local = q if place == "q" else k
        p.write(f"{local} = {scale(p, local, f)}", "scale")
    elif not unscaled and place == "both":
        root = p.pick(
            "root", [f"{p.size('dk')} ** -0.25", f"(1.0 / math.sqrt(math.sqrt({p.size('dk')})))"]
        )
        p.write(f"{q} = {scale(p, q, root)}", "scale")
        p.write(f"{k} = {scale(p, k, root)}", "scale")
        drop_unused(p, "")
    text, found = scores(p, q, k, axes, k_axes)
    in_line = place == "in line" and not unscaled
    p.write(
        f"{s} = {scale(p, f'({text})', f) if in_line else text}",
        "score" + (",scale" if in_line else ""),
    )
    if not unscaled and place == "scores":
        ways = [f"{s} = {scale(p, s, f)}", f"{s} *= {f}"]
        p.write(p.pick("scale scores", ways), "scale")
    if p.is_fault("scale twice"):
        p.write(f"{s} = {s} / math.sqrt({p.size('dk')})", "scale again")
    if p.is_fault("dropout on scores"):
        p.write(f"{s} = {dropout(p, s)}", "dropout")
    on_scores(p, s, found)
    if "window" in p.extras:
        near, sense = window(p)
        given.append(Mask(near, "qk", sense))
    late = p.is_fault("mask after softmax")
    if not late:
        _lay_all(p, given, s, found)
    if p.is_fault("no softmax"):
        w = s
    else:
        softmax(p, s, w, found)
    if late:
        for m in given:
            _late(p, m, w, found)
    if p.is_fault("scale after softmax"):
        p.write(f"{w} = {w} * {p.size('dk')} ** -0.5", "scale")
    if p.dropout and not p.is_fault("dropout on scores"):
        p.write(f"{w} = {dropout(p, w)}", "dropout")
    if p.is_fault("weights on keys"):
        v = k
        if k_axes.endswith("dt"):
            v = f"{k}.transpose(-2, -1)"
    return context(p, w, v, found, axes)


def _lay_all(p: Plan, given: list[Mask], s: str, axes: str) -> None:
    if len(given) == 2 and all(m.sense != "add" for m in given) and p.choices.chance("joined"):
        texts = [spread(p, m, axes) for m in given]
        hidden = [t if m.sense == "hide" else f"~{t}" for t, m in zip(texts, given, strict=True)]
        joined = Mask("gone", axes, "hide", given[0].triangle)
        if p.fault is None:
            p.write(f"gone = {' | '.join(hidden)}")
            lay(p, joined, s, axes)
            return
    for m in given:
        lay(p, m, s, axes)


def _late(p: Plan, mask: Mask, w: str, axes: str) -> None:
    text = spread(p, mask, axes)
    if mask.sense == "add":
        text, sense = f"({text} == 0)", "keep"
    else:
        sense = mask.sense
    hide = text if sense == "hide" else f"~{text}"
    p.write(
        p.pick("late", [f"{w} = {w}.masked_fill({hide}, 0.0)", f"{w} = {w} * (~({hide})).float()"]),
        "mask",
    )


def scores(p: Plan, q: str, k: str, axes: str, k_axes: str) -> tuple[str, str]:
    """Return the scores as text and their axes, with "q" and "k" for the two lengths."""
    lead = axes[:-2]
    ways: list[tuple[str, str]] = []
    if axes.endswith("td") and k_axes == lead + "dt":
        ways += [(f"{q} @ {k}", f"{lead}qk"), (f"torch.matmul({q}, {k})", f"{lead}qk")]
    elif axes.endswith("td") and k_axes == axes:
        turned = p.pick(
            "turn keys",
            [
                f"{k}.transpose(-2, -1)",
                f"{k}.mT",
                f"{k}.transpose(-1, -2)",
                f"{k}.swapaxes(-1, -2)",
            ],
        )
        ways += [
            (f"{q} @ {turned}", f"{lead}qk"), (f"torch.matmul({q}, {turned})", f"{lead}qk"),
            (f"{k} @ {q}.transpose(-2, -1)", f"{lead}kq"),
            (f"({q}.unsqueeze(-2) * {k}.unsqueeze(-3)).sum(-1)", f"{lead}qk"),
        ]  # fmt: skip
        if len(axes) == 3:
            ways.append((f"torch.bmm({q}, {turned})", f"{lead}qk"))
    outer = (
        lead.replace("t", "").replace("d", "")
        if axes.endswith("td")
        else "".join(a for a in axes if a not in "td")
    )
    target = p.pick(
        "score axes",
        [
            f"{outer}qk",
            f"{outer}qk",
            f"{outer}kq",
            *([f"{outer[0]}q{outer[1:]}k", f"{outer[::-1]}qk"] if len(outer) == 2 else []),
        ],
    )
    ways.append(
        (einsum(p, [axes.replace("t", "q"), k_axes.replace("t", "k")], target, q, k), target)
    )
    if p.is_fault("softmax over heads", "softmax over batch"):
        ways = [w for w in ways if "b" in w[1]]
    return p.choices.pick("score", ways)


def softmax(p: Plan, s: str, w: str, axes: str) -> None:
    """Write the normaliser."""
    dim = axes.index("k")
    if p.is_fault("softmax over queries"):
        dim = axes.index("q")
    elif p.is_fault("softmax over heads"):
        dim = axes.index("h")
    elif p.is_fault("softmax over batch"):
        dim = axes.index("b")
    d = p.pick("dim", [str(dim - len(axes)), str(dim)])
    if p.is_fault("unstable softmax"):
        p.write(p.pick("exp", [f"{s} = {s}.exp()", f"{s} = torch.exp({s})"]), "softmax")
        p.write(f"{w} = {s} / {s}.sum({d}, keepdim=True)", "softmax again")
        return
    ways = [
        f"{w} = {s}.softmax(dim={d})", f"{w} = F.softmax({s}, dim={d})", f"{w} = torch.softmax({s}, {d})",
        f"{w} = F.log_softmax({s}, dim={d}).exp()", "by hand", "by logsumexp", "module",
    ]  # fmt: skip
    way = p.pick("softmax", ways)
    if way == "module" and p.packaging != "function":
        way = f"{w} = {p.attribute('norm_weights', f'nn.Softmax(dim={d})  #@softmax')}({s})"
    elif way == "by hand":
        p.write(
            f"{s} = {s} - {s}.{p.pick('max', ['amax', 'amax', 'max'])}({d}, keepdim=True)".replace(
                ".max(" + d + ", keepdim=True)", ".max(" + d + ", keepdim=True)[0]"
            )
        )
        p.write(f"{s} = {s}.exp()", "softmax")
        way = f"{w} = {s} / {s}.sum({d}, keepdim=True)"
    elif way == "by logsumexp":
        way = f"{w} = torch.exp({s} - torch.logsumexp({s}, {d}, keepdim=True))"
    elif way == "module":
        way = ways[0]
    p.write(way, "softmax")
    if p.is_fault("softmax twice"):
        p.write(f"{w} = torch.softmax({w}, dim={d})", "softmax again")


def dropout(p: Plan, text: str) -> str:
    """Return `text` under dropout."""
    rate = p.attribute("p", f"{p.dropout}")
    if p.is_fault("dropout always"):
        return p.pick(
            "always", [f"F.dropout({text}, {rate})", f"F.dropout({text}, p={rate}, training=True)"]
        )
    if p.choices.chance("functional dropout"):
        return f"F.dropout({text}, {rate}, self.training)"
    p.init[:] = [(n, v) for n, v in p.init if n != "p"]
    return f"{p.attribute('drop', f'nn.Dropout({p.dropout})')}({text})"


def context(p: Plan, w: str, v: str, axes: str, v_axes: str) -> tuple[str, str]:
    """Write the contraction with the values; return the context and its axes."""
    y = p.names["y"]
    lead = axes[:-2]
    ways: list[tuple[str, str]] = []
    if v_axes == f"{lead}td" and axes.endswith("qk"):
        ways += [(f"{w} @ {v}", f"{lead}qd"), (f"torch.matmul({w}, {v})", f"{lead}qd")]
        ways.append((f"({w}.unsqueeze(-1) * {v}.unsqueeze(-3)).sum(-2)", f"{lead}qd"))
        if len(axes) == 3:
            ways.append((f"torch.bmm({w}, {v})", f"{lead}qd"))
    elif v_axes == f"{lead}td" and axes.endswith("kq"):
        ways += [(f"{w}.transpose(-2, -1) @ {v}", f"{lead}qd")]
    outer = "".join(a for a in axes if a not in "qk")
    targets = [
        f"{outer}qd",
        f"{outer}qd",
        *(["bqhd", "qbhd", "hbqd"] if outer in ("bh", "hb") else []),
    ]
    if p.is_fault("merge by view"):
        targets = [f"{outer}qd"]
    target = p.pick("context axes", targets)
    ways.append((einsum(p, [axes, v_axes.replace("t", "k")], target, w, v), target))
    text, found = p.choices.pick("values", ways)
    p.write(f"{y} = {text}", "value")
    return y, found


def fused(p: Plan, q: str, k: str, v: str, mask: str | None) -> None:
    """Write scaled_dot_product_attention on (B, h, T, d)."""
    y = p.names["y"]
    p.names["q axes"] = "bhtd"
    options = ""
    given = masks(p, mask)
    call = f"{q}, {k}, {k if p.is_fault('weights on keys') else v}"
    planted = {
        "scale by width",
        "scale by heads",
        "scale by length",
        "scale not rooted",
        "scale multiplied",
    }
    if p.fault is not None and p.fault.name in planted:
        options = f", scale={factor(p)}"
    elif p.is_fault("scale twice"):
        p.write(f"{q} = {q} / math.sqrt({p.size('dk')})", "scale")
    elif p.choices.chance("scale given", 4):
        options = f", scale={p.size('dk')} ** -0.5"
    if p.dropout:
        options += f", dropout_p={p.attribute('p', str(p.dropout))} if self.training else 0.0"
    if len(given) == 1 and given[0].triangle and p.fault is None and p.choices.chance("is_causal"):
        options += ", is_causal=True"
    elif given:
        texts = []
        for m in given:
            text = spread(p, m, "bhqk")
            texts.append((f"~{text}" if m.sense == "hide" else text, m.sense))
        if any(sense == "add" for _, sense in texts):
            as_numbers = [
                t
                if sense == "add"
                else f'torch.zeros_like({t}, dtype={q}.dtype).masked_fill(~({t}), float("-inf"))'
                for t, sense in texts
            ]
            joined = " + ".join(as_numbers)
        else:
            joined = " & ".join(t for t, _ in texts)
        p.write(f"seen = {joined}", "mask")
        options += ", attn_mask=seen"
    p.write(
        f"{y} = F.scaled_dot_product_attention({call}{options})",
        "score,softmax,value,scale,mask,scale again",
    )
