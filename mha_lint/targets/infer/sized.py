"""Expressions for a constructor argument of a known role, at the sizes of a scheme."""

from __future__ import annotations

import re

from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.vocabulary import Role

_TOKENS = re.compile(r"quer|latent|slot|seed|regist|mem")
"""Counts of rows of a table that attends or is attended to: 5 is no size of any scheme."""

_NARROW = re.compile(r"latent|bottleneck|compress|low_rank")
"""Widths between two maps, which are narrower than both: as wide, one of the maps is redundant."""


def sized(name: str, role: Role | None, scheme: Scheme) -> list[str]:
    """Return expressions for a number of role `role`, the likeliest first."""
    width, heads, head_dim = scheme.width, scheme.heads, scheme.head_dim
    plain = name.lower()
    match role:
        case Role.WIDTH if _NARROW.search(plain):
            return [str(width - 2 * heads), str(width)]
        case Role.WIDTH:
            return [str(width)]
        case Role.HEADS:
            return [str(heads), "1"]
        case Role.KV_HEADS:
            return [str(scheme.kv_heads), str(heads), "1"]
        case Role.HEAD_DIM:
            return [str(head_dim), str(width)]
        case Role.LENGTH:
            return [str(scheme.length), str(scheme.source), "64"]
        case Role.SOURCE:
            return [str(scheme.source), str(scheme.length)]
        case Role.VOCABULARY:
            return [str(scheme.vocabulary)]
        case Role.CLASSES:
            return ["5"]
        case Role.LAYERS:
            return [str(scheme.layers), "1"]
        case Role.INNER:
            return [str(scheme.inner), str(width)]
        case Role.RATIO:
            return ["2", "2.0", "(2, 2)"]
        case Role.RATE:
            return ["0.9" if plain.startswith("keep") else "0.1"]
        case Role.FLAG | Role.CAUSAL:
            return [flag(name), str(flag(name) != "True")]
        case Role.SIDE:
            return [str(scheme.side)]
        case Role.WINDOW:
            return ["4" if scheme.square else "3", "2"]
        case Role.COUNT if _TOKENS.search(plain):
            return ["5", "2", "1"]
        case Role.PATCH | Role.COUNT:
            return ["2", "1"]
        case Role.RANK:
            return ["2", "3", "1"]
        case Role.GROUPS:
            return ["2", "1"]
        case Role.KERNEL:
            return ["3", "(3, 3)", "1"]
        case Role.STEP | Role.INDEX:
            return ["1", "2", "0"]
        case Role.CHUNK:
            return ["4", str(scheme.length), "2"]
        case Role.BATCH:
            return [str(scheme.batch)]
        case Role.EPSILON:
            return ["1e-05"]
        case Role.BASE:
            return ["10000.0"]
        case Role.SCALE:
            return [f"{head_dim} ** {0.5 if plain.startswith('temp') else -0.5}", "1.0"]
        case Role.SPREAD:
            return ["0.02"]
        case Role.LABEL:
            return [repr(plain), "None"]
        case Role.DTYPE:
            return ["torch.float32"]
        case Role.DEVICE:
            return ["'cpu'", "torch.device('cpu')"]
        case _ if "implementation" in plain:
            return ["'eager'"]
        case _:
            return ["2", str(width), "None", "0.5", "True"]


def flag(name: str) -> str:
    """Return "True" or "False" for a required flag: what is usual for its name."""
    plain = name.lower()
    on = ("bias", "causal", "batch_first", "learn", "train", "affine", "norm_first", "mask")
    return str(any(part in plain for part in on) and not plain.startswith("no_"))


def sized_tuple(name: str, role: Role | None, length: int, scheme: Scheme) -> str:
    """Return a tuple of `length` numbers."""
    side = scheme.side
    if role is Role.SIDE:
        items = [str(side), str(side if scheme.square else side + 1)]
    elif role is Role.WINDOW:
        items = ["2", "2"] if scheme.square else ["2", "3"]
    else:
        items = [sized(name, role, scheme)[0]] * 2
    items += [items[-1]] * (length - 2)
    return f"({', '.join(items[:length])})"
