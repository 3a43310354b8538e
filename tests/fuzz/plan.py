"""What a random attention module is: its sizes, layout, masks, names, and the fault planted in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fuzz.choices import Choices
from tests.fuzz.faults import FAULTS, Fault

SCHEMES: tuple[dict[str, str], ...] = (
    {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj", "qkv": "qkv_proj", "kv": "kv_proj"},
    {"q": "to_q", "k": "to_k", "v": "to_v", "o": "to_out", "qkv": "to_qkv", "kv": "to_kv"},
    {"q": "W_q", "k": "W_k", "v": "W_v", "o": "W_o", "qkv": "W_qkv", "kv": "W_kv"},
    {"q": "query", "k": "key", "v": "value", "o": "dense", "qkv": "c_attn", "kv": "key_value"},
    {"q": "lin1", "k": "lin2", "v": "lin3", "o": "lin4", "qkv": "lin", "kv": "lin5"},
    {"q": "a", "k": "b", "v": "c", "o": "d", "qkv": "abc", "kv": "bc"},
)  # fmt: skip
SIZES: tuple[dict[str, str], ...] = (
    {"h": "num_heads", "dk": "head_dim", "dv": "value_dim", "g": "num_kv_heads", "d": "width"},
    {"h": "heads", "dk": "d_k", "dv": "d_v", "g": "kv_heads", "d": "d_model"},
    {"h": "n_head", "dk": "hs", "dv": "vs", "g": "n_kv", "d": "n_embd"},
    {"h": "m", "dk": "e", "dv": "f", "g": "g", "d": "n"},
)
LOCALS: tuple[dict[str, str], ...] = (
    {"x": "x", "mem": "memory", "q": "q", "k": "k", "v": "v", "s": "scores", "w": "weights", "y": "context"},
    {"x": "hidden", "mem": "source", "q": "Q", "k": "K", "v": "V", "s": "attn", "w": "attn", "y": "out"},
    {"x": "inputs", "mem": "encoded", "q": "xq", "k": "xk", "v": "xv", "s": "sim", "w": "probs", "y": "res"},
    {"x": "u", "mem": "z", "q": "p1", "k": "p2", "v": "p3", "s": "t1", "w": "t2", "y": "t3"},
)  # fmt: skip
CLASSES = ("Attention", "MultiHead", "MHA", "Mixer", "Layer", "Thing")
CAUSAL_CLASSES = ("CausalSelfAttention", "MaskedAttention", "DecoderAttention", *CLASSES)


@dataclass(slots=True)
class Plan:
    """The decisions that several stages share, and the text that they wrote so far."""

    choices: Choices
    fault: Fault | None
    form: str
    """"open" (every stage written out), "loop" (over heads), "sdpa" or "module"."""
    packaging: str
    batch: int
    tq: int
    tk: int
    heads: int
    kv_heads: int
    dk: int
    dv: int
    width: int
    source_width: int
    cross: bool
    time_first: bool
    causal: bool
    padding: str
    """"", "keep", "hide", "additive" or "lengths"."""
    dropout: float
    names: dict[str, str]
    expect: list[str] = field(default_factory=list)
    init: list[tuple[str, str]] = field(default_factory=list)
    """Attributes and their values; a name that starts with "buffer " is a registered buffer."""
    body: list[str] = field(default_factory=list)
    core: tuple[int, int] = (0, 0)
    """The lines of the body from scores to context."""
    weights: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each of q, k, v (heads, d, in) and o (heads, d, out): the weight and bias, as text of `m`."""
    imports: set[str] = field(default_factory=set)
    extras: set[str] = field(default_factory=set)

    def is_fault(self, *names: str) -> bool:
        """Tell whether one of `names` is planted."""
        return self.fault is not None and self.fault.name in names

    def pick(self, label: str, options: list[str] | tuple[str, ...]) -> str:
        """Return one of `options`."""
        return self.choices.pick(label, options)

    def write(self, line: str, mark: str = "") -> None:
        """Add a line to forward; `mark` names the place of a fault."""
        self.body.append(f"{line}  #@{mark}" if mark else line)

    def attribute(self, name: str, value: str) -> str:
        """Set an attribute in __init__ once, and return how forward reads it."""
        if all(known != name for known, _ in self.init):
            self.init.append((name, value))
        return f"self.{name.removeprefix('buffer ')}"

    def size(self, key: str) -> str:
        """Return how forward reads the number of heads "h", "g", "dk" or "dv"."""
        numbers = {"h": self.heads, "g": self.kv_heads, "dk": self.dk, "dv": self.dv}
        if key == "g" and self.kv_heads == self.heads:
            key = "h"
        if key == "dv" and self.dv == self.dk:
            key = "dk"
        return self.attribute(self.names[key], f"<{key}>{numbers[key]}")


def draw_plan(c: Choices) -> Plan:
    """Draw the decisions; those that the fault needs are drawn to suit it."""
    fault = c.pick("fault", [*[None] * len(FAULTS), *FAULTS])
    needs = fault.needs if fault is not None else {}
    form = c.pick("form", needs.get("form", ("open", "open", "open", "loop", "sdpa", "module")))
    cross = c.pick("cross", needs.get("cross", (False, False, True)))
    heads = c.pick("heads", needs.get("heads", (4, 3, 2, 5, 1)))
    grouped = heads in (4,) and form in ("open", "sdpa") and c.chance("grouped", 4)
    if "grouped" in needs:
        heads, grouped = 4, True
    kv_heads = c.pick("kv_heads", needs.get("grouped", (2, 1))) if grouped else heads
    dk = c.pick("dk", (6, 8, 5, 4, 7))
    if fault is not None and dk == heads:
        dk += 5
    if needs.get("even_head"):
        dk += dk % 2
    same_values = form == "module" or needs.get("same_values", False)
    dv = dk if same_values or not c.chance("other dv", 5) else c.pick("dv", (3, 9, 10))
    odd_width = form != "module" and not needs.get("even_width") and c.chance("odd width", 4)
    width = c.pick("width", (20, 14, 33)) if odd_width else heads * dk
    source = (
        c.pick("source width", (width, width, 22))
        if cross and not needs.get("same_source")
        else width
    )
    tq = c.pick("tq", (9, 7, 11, 5))
    tk = c.pick("tk", [t for t in (10, 13, 8, 6) if t != tq]) if cross else tq
    # A fault of a scale or an axis is certain only where sizes differ.
    if fault is not None and len({heads, dk, tq, tk, width}) < 5 - (not cross):
        tq, tk = (17, 19) if cross else (17, 17)
    causal = not cross and c.pick("causal", needs.get("causal", (False, False, True)))
    if needs.get("causal") == (True,):
        causal = True
    padding = c.pick(
        "padding", needs.get("padding", ("", "", "keep", "hide", "additive", "lengths"))
    )
    if form == "module" and padding == "lengths":
        padding = "hide"
    packaging = c.pick(
        "packaging", needs.get("packaging", ("class", "class", "block", "free", "function"))
    )
    if packaging == "function" and form not in ("open", "sdpa"):
        packaging = "class"
    if packaging == "free" and form != "open":
        packaging = "class"
    rate = 0.1 if packaging != "function" and c.chance("dropout", 3) else 0.0
    dropout = needs.get("dropout", rate)
    names = {f"{role} projection": name for role, name in c.pick("names", SCHEMES).items()}
    names |= c.pick("sizes", SIZES) | c.pick("locals", LOCALS)
    return Plan(
        choices=c, fault=fault, form=form, packaging=packaging, batch=c.pick("batch", (2, 3)), tq=tq,
        tk=tk, heads=heads, kv_heads=kv_heads, dk=dk, dv=dv, width=width, source_width=source,
        cross=cross, time_first=c.pick("time first", needs.get("time_first", (False, False, False, True))),
        causal=causal, padding=padding, dropout=dropout, names=names,
    )  # fmt: skip
