"""One way to make an argument of a call, and the expression for it."""

from __future__ import annotations

import dataclasses

from mha_lint.targets.infer.axes import Axes


@dataclasses.dataclass(frozen=True, slots=True)
class InputGuess:
    """One way to make an argument: ``kind`` and axes, each a symbol of `Sizes` or a number."""

    kind: str
    axes: Axes = ()
    text: str = ""
    parts: tuple[InputGuess, ...] = ()
    keys: tuple[str, ...] = ()
    high: int = 0
    edited: frozenset[int] = frozenset()
    """Axes that took their length from an error: they do not change again."""

    def with_size(self, axis: int, size: int) -> InputGuess:
        """Return the same with the length of one axis taken from an error."""
        axes = (*self.axes[:axis], size, *self.axes[axis + 1 :])
        return dataclasses.replace(self, axes=axes, edited=self.edited | {axis})

    def with_axes(self, axes: Axes) -> InputGuess:
        """Return the same kind with other axes."""
        return dataclasses.replace(self, axes=axes)


def render_input(guess: InputGuess, sizes: dict[str, int], dtype: str = "") -> str:
    """Return the expression that makes `guess`; `sizes`: the length of each axis symbol."""
    shape = [sizes.get(a, 1) if isinstance(a, str) else a for a in guess.axes]
    shown = ", ".join(map(str, shape))
    tail = f", dtype={dtype}" if dtype else ""
    match guess.kind:
        case "float":
            return f"torch.randn({shown}{tail})"
        case "ids":
            whole = shown + "," if len(shape) == 1 else shown
            return f"torch.randint(0, {max(guess.high, 1)}, ({whole}))"
        case "edges":
            return f"torch.randint(0, {sizes['T']}, ({shown}))"
        case "true" | "false":
            maker = "ones" if guess.kind == "true" else "zeros"
            return f"torch.{maker}({shown}, dtype=torch.bool)"
        case "ones" | "zeros":
            return f"torch.{guess.kind}({shown}{tail})"
        case "polar":
            return f"torch.polar(torch.ones({shown}), torch.randn({shown}))"
        case "positions":
            row = f"torch.arange({shape[-1]})"
            return row if len(shape) == 1 else f"{row}.expand({shown})"
        case "lengths":
            return (
                f"torch.full(({shape[0]},), {sizes[guess.text or 'T']}) - torch.arange({shape[0]})"
            )
        case "size":
            return str(sizes.get(guess.text, 1))
        case "tuple" | "list":
            inner = ", ".join(render_input(p, sizes, dtype) for p in guess.parts)
            if guess.kind == "list":
                return f"[{inner}]"
            return f"({inner},)" if len(guess.parts) == 1 else f"({inner})"
        case "dict":
            pairs = zip(guess.keys, guess.parts, strict=True)
            return (
                "{"
                + ", ".join(f"{key!r}: {render_input(part, sizes, dtype)}" for key, part in pairs)
                + "}"
            )
        case "object":
            pairs = zip(guess.keys, guess.parts, strict=True)
            return (
                "SimpleNamespace("
                + ", ".join(f"{key}={render_input(part, sizes, dtype)}" for key, part in pairs)
                + ")"
            )
        case _:
            return guess.text
