"""Which projection a tensor's name hints at. Names are hints; what a shape says decides."""

from __future__ import annotations

import re
from functools import cache

_NOISE = frozenset({
    "proj", "projection", "project", "linear", "lin", "layer", "to", "fc", "net", "weight", "conv",
    "convolution", "map", "c", "dense", "head", "heads", "in", "w", "transform",
})  # fmt: skip
_WORDS = {
    "q": "q", "query": "q", "queries": "q", "qs": "q",
    "k": "k", "key": "k", "keys": "k", "ks": "k",
    "v": "v", "value": "v", "values": "v", "vs": "v",
    "o": "o", "out": "o", "output": "o", "unify": "o", "merge": "o", "resid": "o",
}  # fmt: skip
_GLUED = re.compile(
    r"(?:w|to|proj|lin|linear|fc)?(q|k|v|o|qkv|kv|qk|query|key|value|queries|keys|values|qs|ks|vs|out)"
    r"(?:proj|lin|linear|s)?"
)
_ATTENTION = re.compile(r"att|mha|multi_?head|^sa$|^ca$", re.IGNORECASE)
_NORMS = frozenset({"norm", "layernorm", "ln", "rmsnorm", "rms"})
_WRAPPERS = re.compile(
    r"weight|bias|linear|base_layer|dense|conv|convolution|projection|\d+|default|adapter\w*|lora_\w+"
    r"|qweight|qzeros|scales|g_idx|absmax|quant_map|SCB|SCBs|nested_\w+|quant_state\S*|weight_\w+|kernel"
    r"|ia3_\w+|bitsandbytes__\w+|w_q|meta|zeros|scale|original\d*|parametrizations|convolution_projection",
    re.IGNORECASE,
)
"""What may stand between a projection's name and the end of a tensor's name."""


@cache
def role_of(component: str) -> str | None:
    """Return the role that one component of a name hints at.

    "q", "k", "v", "kv", "qk", "qkv" (joined projections), "o", "o?" (a name that any linear map may
    have), "joined?" (one that is a joined projection if its shape agrees), "q_norm", "k_norm",
    "q_a", "q_b", "kv_a", "kv_b" (low-rank attention), or None.
    """
    tokens = [t.lower() for t in re.split(r"[_\-]|(?<=[a-z])(?=[A-Z])", component) if t]
    if tokens and tokens[-1] in {"weight", "bias"}:
        tokens.pop()
    if not tokens:
        return None
    if any(t in _NORMS for t in tokens):
        return _norm([t for t in tokens if t not in _NORMS])
    if tokens[-2:] == ["with", "mqa"]:
        tokens = tokens[:-2]
    if _is_joined(tokens):
        return "joined?"
    parts = [_letters(t) for t in tokens if t not in _NOISE and t not in _JOINED]
    if tokens[:2] == ["in", "proj"] and not parts:
        return "joined?"
    if not parts:
        return (
            "o?" if tokens[-1] in {"proj", "projection", "dense", "linear", "fc", "lin"} else None
        )
    rank = parts[-1] if parts[-1] in {"a", "b"} else ""
    if rank:
        parts.pop()
    if not parts or any(p is None for p in parts):
        return None
    letters = "".join(p for p in parts if p)
    if rank:
        return f"{letters}_{rank}" if letters in {"q", "kv"} else None
    return letters if letters in {"q", "k", "v", "kv", "qk", "qkv", "o"} else None


_WEAK = (None, "o?", "joined?")
_JOINED = frozenset({"attn", "att", "attention"})


def _is_joined(tokens: list[str]) -> bool:
    """``c_attn``, ``att_proj``; ``attention_out`` is an output."""
    rest = [t for t in tokens if t not in _NOISE]
    return len(rest) == 1 and rest[0] in _JOINED


def _letters(token: str) -> str | None:
    if token in {"a", "b"}:
        return token
    if token in _WORDS:
        return _WORDS[token]
    glued = _GLUED.fullmatch(token)
    if glued is None:
        return None
    core = glued[1]
    return _WORDS.get(core, core)


def _norm(tokens: list[str]) -> str | None:
    parts = [_letters(t) for t in tokens if t not in _NOISE]
    return f"{parts[0]}_norm" if parts in (["q"], ["k"]) else None


def is_attention(component: str) -> bool:
    """Tell whether a module's name says that it is attention."""
    return bool(_ATTENTION.search(component))


def is_cross(path: str) -> bool:
    """Tell whether a module's path says that keys come from elsewhere."""
    return bool(re.search(r"cross|encoder_att|enc_?dec|x_attn|src_att|context_att", path, re.I))


def split_name(name: str) -> tuple[str, str, str, str] | None:
    """Return (owner, component, role, rest) of a tensor that belongs to a projection, or None."""
    parts = name.split(".")
    for i in range(len(parts) - 1, -1, -1):
        rest = parts[i + 1 :]
        if len(rest) > 4 or not all(_WRAPPERS.fullmatch(r) for r in rest):
            return None
        role = role_of(parts[i])
        plain = role == "o?" and rest and i and role_of(parts[i - 1]) not in _WEAK
        if role is None or (plain and not parts[i].isdigit()):
            continue
        if not rest and not re.search(r"weight|bias|^W_?[qkvo]$|^[qkvo]$", parts[i], re.I):
            continue
        tail = ".".join(rest) or ("bias" if parts[i].endswith("bias") else "weight")
        return ".".join(parts[:i]), parts[i], role, tail
    return None
