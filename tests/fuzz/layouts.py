"""Move axes: many ways to write the same reordering, split and merge."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.plan import Plan


def moved(p: Plan, text: str, source: str, target: str) -> str:
    """Return `text`, with axes `source` (one letter each), reordered to `target`."""
    if source == target:
        return text
    order = ", ".join(str(source.index(a)) for a in target)
    ways = [f"{text}.permute({order})"]
    differing = [i for i, (a, b) in enumerate(zip(source, target, strict=True)) if a != b]
    if len(differing) == 2:
        i, j = differing
        ways = [
            f"{text}.transpose({i}, {j})", *ways, f"{text}.swapaxes({i}, {j})",
            f"torch.transpose({text}, {i - len(source)}, {j - len(source)})",
        ]  # fmt: skip
    source, target = source.replace("3", "s"), target.replace("3", "s")
    ways += [
        f"torch.permute({text}, ({order}))",
        f'torch.einsum("{source}->{target}", {text})',
        f'rearrange({text}, "{" ".join(source)} -> {" ".join(target)}")',
    ]
    way = p.pick("move", ways)
    if way.startswith("rearrange"):
        p.imports.add("from einops import rearrange")
    return way


def einsum(p: Plan, inputs: Sequence[str], output: str, *tensors: str) -> str:
    """Return an einsum over axes named by letters, with other letters now and then."""
    text = f"{','.join(inputs)}->{output}"
    if p.choices.chance("letters", 3):
        known: dict[str, str] = {}
        for a in text:
            if a.isalpha() and a not in known:
                known[a] = "abcdefgh"[len(known)]
        text = "".join(known.get(a, a) for a in text)
    return f'torch.einsum("{text}", {", ".join(tensors)})'


def aligned(text: str, axes: str, target: str) -> str:
    """Return a mask with `axes` so that it broadcasts over `target`."""
    wanted = "".join(a for a in target if a in axes)
    if wanted != axes:
        order = ", ".join(str(axes.index(a)) for a in wanted)
        text = f"{text}.permute({order})"
    first = min(target.index(a) for a in axes)
    inside = target[first:]
    if inside == wanted:
        return text
    return f"{text}[{', '.join(':' if a in axes else 'None' for a in inside)}]"
