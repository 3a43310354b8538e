"""Single edits of right attention code: what is changed, and which codes name that fault rightly.

Every operator yields all of its edits of a source, so nothing is drawn at random. The codes are
those of the catalogue that describe the edit; which one holds may depend on the code around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

LAYOUT = ("MHA104", "MHA105", "MHA601", "MHA602", "MHA103")
ROLES = ("MHA106", "MHA107", "MHA109", "MHA112")
SCALE = ("MHA201", "MHA202")
MASKS = ("MHA302", "MHA304", "MHA306", "MHA307", "MHA308", "MHA309", "MHA310", "MHA311", "MHA312")
ROTATION = ("MHA501", "MHA502", "MHA507", "MHA508")
DROPOUT = ("MHA109", "MHA401", "MHA402", "MHA403")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace ``source[start:end]`` by ``text``; ``codes`` name the fault."""

    operator: str
    start: int
    end: int
    text: str
    codes: tuple[str, ...]


class Source:
    """A source with its tree, and the offsets of its nodes."""

    def __init__(self, text: str) -> None:
        """Parse `text`."""
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the offsets of `node` (the sources are ASCII)."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of `node`."""
        start, end = self.span(node)
        return self.text[start:end]

    def replace(
        self, operator: str, node: ast.expr | ast.stmt, text: str, codes: tuple[str, ...]
    ) -> Edit:
        """Return the edit that puts `text` in the place of `node`."""
        return Edit(operator, *self.span(node), text, codes)


def edits(source: Source) -> Iterator[Edit]:
    """Yield every single edit, operator by operator, in the order of the source."""
    for operator in (
        axes, transposes, patterns, scales, masks, roles, projections, repeats, concatenations,
        dropouts,
    ):  # fmt: skip
        found = sorted(operator(source), key=lambda e: (e.start, e.end, e.text))
        yield from dict.fromkeys(found)


def _calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            yield node, name if name else getattr(function, "id", "")


def axes(source: Source) -> Iterator[Edit]:
    """Normalise over another axis."""
    for call, name in _calls(source):
        if name != "softmax":
            continue
        for keyword in call.keywords:
            if keyword.arg == "dim":
                for other in ("-2", "1", "0"):
                    yield source.replace("axis", keyword.value, other, ("MHA204",))


def transposes(source: Source) -> Iterator[Edit]:
    """Leave a transposition out, or permute other axes."""
    for call, name in _calls(source):
        if name not in ("transpose", "permute") or not isinstance(call.func, ast.Attribute):
            continue
        yield source.replace("transpose", call, source.of(call.func.value), LAYOUT)
        arguments = [source.of(a) for a in call.args]
        if name == "permute":
            for i in range(len(arguments) - 1):
                swapped = list(arguments)
                swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
                text = f"{source.of(call.func.value)}.permute({', '.join(swapped)})"
                yield source.replace("transpose", call, text, (*LAYOUT, *ROLES))


def patterns(source: Source) -> Iterator[Edit]:
    """Swap two neighbouring letters of one operand of an einsum."""
    for call, name in _calls(source):
        first = call.args[0] if call.args else None
        if name != "einsum" or not isinstance(first, ast.Constant):
            continue
        text = str(first.value)
        tight = text.replace(" ", "")
        parts = tight.replace("->", ",").split(",")
        for number, part in enumerate(parts):
            for i in range(1, len(part) - 1):
                changed = list(parts)
                changed[number] = part[:i] + part[i + 1] + part[i] + part[i + 2 :]
                pattern = f"{','.join(changed[:-1])}->{changed[-1]}"
                if " " in text:
                    pattern = " ".join(pattern).replace("- >", "->").replace(" ,", ",")
                codes = (*LAYOUT, "MHA204", "MHA106", "MHA113")
                yield source.replace("transpose", first, repr(pattern), codes)


def _is_scale(source: Source, node: ast.expr) -> bool:
    text = source.of(node).replace(" ", "")
    return "sqrt" in text or "**0.5" in text or "**-0.5" in text or text.endswith("scale")


def scales(source: Source) -> Iterator[Edit]:
    """Leave the scale out, turn it over, apply it twice, or take it of another width."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            if not _is_scale(source, node.right) or "randn" in source.of(node.left):
                continue
            left, right = source.of(node.left), source.of(node.right)
            divides = isinstance(node.op, ast.Div)
            if left == "1.0":
                continue  # a part of the factor
            yield source.replace("scale", node, left, SCALE)
            yield source.replace("scale", node, f"{left} {'*/'[not divides]} {right}", SCALE)
            sign = "*/"[divides]
            yield source.replace("scale", node, f"{left} {sign} {right} {sign} {right}", SCALE)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.expr):
            continue
        text = source.of(node)
        if _scale_around(source, node) and text in (
            "self.head_dim",
            "self.head_size",
            "self.dim",
            "self.size",
        ):
            heads = next(
                (h for h in ("self.num_heads", "self.n_head", "self.heads") if h in source.text), ""
            )
            yield source.replace("scale", node, f"({heads} * {text})", SCALE)
            yield source.replace("scale", node, heads, SCALE)
        if text in ("(dim // num_heads) ** -0.5", "(dim // heads) ** -0.5"):
            yield source.replace("scale", node, "dim ** -0.5", SCALE)
            yield source.replace("scale", node, f"{text[8:-9]} ** -0.5", SCALE)


def _scale_around(source: Source, node: ast.expr) -> bool:
    """Return whether `node` is what the root of a scale is taken of."""
    for other in ast.walk(source.tree):
        if isinstance(other, ast.BinOp) and isinstance(other.op, ast.Pow) and other.left is node:
            return True
        if isinstance(other, ast.Call) and node in other.args:
            return source.of(other.func).endswith("sqrt")
    return False


def masks(source: Source) -> Iterator[Edit]:
    """Turn a mask round, move its diagonal, weaken its fill, or leave it out."""
    for call, name in _calls(source):
        if name in ("tril", "triu"):
            other = "triu" if name == "tril" else "tril"
            yield source.replace(
                "mask", call.func, source.of(call.func).replace(name, other), MASKS
            )
            diagonal = [k for k in call.keywords if k.arg == "diagonal"]
            for keyword in diagonal:
                value = source.of(keyword.value)
                for change in ("+ 1", "- 1"):
                    yield source.replace("mask", keyword.value, f"{value} {change}", MASKS)
                if "t" in value:
                    yield source.replace("mask", keyword.value, "1", MASKS)
            if not diagonal:
                for at in ("1", "-1"):
                    text = source.of(call)[:-1] + f", diagonal={at})"
                    yield source.replace("mask", call, text, MASKS)
        if name == "masked_fill" and isinstance(call.func, ast.Attribute):
            yield source.replace("mask", call, source.of(call.func.value), MASKS)
            for weak in ("-1e-9", "0.0"):
                yield source.replace("mask", call.args[1], weak, MASKS)
            mask = call.args[0]
            yield source.replace("mask", mask, f"~({source.of(mask)})", MASKS)
        for keyword in call.keywords:
            if keyword.arg == "is_causal":
                yield source.replace("mask", keyword.value, "False", MASKS)
            if keyword.arg in ("attn_mask", "key_padding_mask"):
                text = source.of(keyword.value)
                yield source.replace("mask", keyword.value, f"~{text}", MASKS)
                yield source.replace("mask", keyword.value, "None", MASKS)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            yield source.replace("mask", node, source.of(node.operand), MASKS)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = source.of(node.left), source.of(node.comparators[0])
            swaps = {ast.Lt: "<=", ast.GtE: ">", ast.Eq: "!="}
            new = swaps.get(type(node.ops[0]))
            if new is not None:
                yield source.replace("mask", node, f"{left} {new} {right}", MASKS)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            left, right = source.of(node.left), source.of(node.right)
            yield source.replace("mask", node, f"{left} & {right}", MASKS)
        if isinstance(node, ast.Subscript) and source.of(node).endswith("[:, None, :]"):
            text = source.of(node).replace("[:, None, :]", "[:, :, None]")
            yield source.replace("mask", node, text, MASKS)


def roles(source: Source) -> Iterator[Edit]:
    """Let one operand stand in the place of another."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id in ("q", "k", "v"):
                    for other in sorted({"q", "k", "v"} - {part.id}):
                        yield source.replace("role", part, other, ROLES)
    for call, name in _calls(source):
        if name in ("matmul", "bmm", "einsum", "scaled_dot_product_attention"):
            for argument in call.args:
                for part in ast.walk(argument):
                    if isinstance(part, ast.Name) and part.id in ("q", "k", "v"):
                        for other in sorted({"q", "k", "v"} - {part.id}):
                            yield source.replace("role", part, other, ROLES)
        text = source.of(call.func)
        if text in ("self.self_attn", "self.cross_attn"):
            names = sorted({source.of(a) for a in call.args})
            for argument in call.args:
                for other in names:
                    if other != source.of(argument):
                        yield source.replace("role", argument, other, (*ROLES, "MHA308"))
        if text in QUERY_MAPS | KEY_MAPS | VALUE_MAPS:
            for group in (QUERY_MAPS, KEY_MAPS, VALUE_MAPS):
                for other in sorted(group):
                    if other != text and f"{other} =" in source.text and text not in group:
                        yield source.replace("role", call.func, other, ROLES)


QUERY_MAPS = {"self.to_q", "self.wq", "self.query", "self.q_proj"}
KEY_MAPS = {"self.to_k", "self.wk", "self.key", "self.k_proj"}
VALUE_MAPS = {"self.to_v", "self.wv", "self.value", "self.v_proj"}
OUTPUT_MAPS = {"self.c_proj", "self.to_out", "self.wo", "self.proj", "self.o_proj", "self.output"}


def projections(source: Source) -> Iterator[Edit]:
    """Leave a projection out."""
    for call, _ in _calls(source):
        text = source.of(call.func)
        if text in OUTPUT_MAPS:
            yield source.replace("projection", call, source.of(call.args[0]), ("MHA101", "MHA109"))
        if text in QUERY_MAPS | KEY_MAPS | VALUE_MAPS:
            codes = ("MHA103", "MHA109", *ROLES)
            yield source.replace("projection", call, source.of(call.args[0]), codes)


def repeats(source: Source) -> Iterator[Edit]:
    """Tile where blocks are due, or repeat along another axis."""
    for call, name in _calls(source):
        if name != "repeat_interleave" or not isinstance(call.func, ast.Attribute):
            continue
        what, times = source.of(call.func.value), source.of(call.args[0])
        if "dim=0" in source.of(call):
            yield source.replace("repeat", call, f"{what}.repeat({times}, 1)", ("MHA308",))
            continue
        codes = ("MHA511", "MHA512", *LAYOUT)
        yield source.replace("repeat", call, f"{what}.repeat(1, {times}, 1, 1)", codes)
        for axis in ("0", "2", "3"):
            text = f"{what}.repeat_interleave({times}, dim={axis})"
            yield source.replace("repeat", call, text, codes)


def concatenations(source: Source) -> Iterator[Edit]:
    """Join along another axis, in another order, or with another sign."""
    for call, name in _calls(source):
        if name != "cat":
            continue
        codes = (*LAYOUT, *ROTATION, "MHA505", "MHA310", "MHA521")
        for keyword in call.keywords:
            if keyword.arg == "dim":
                for other in ("0", "1", "2", "-2"):
                    if other != source.of(keyword.value):
                        yield source.replace("concatenation", keyword.value, other, codes)
        parts = call.args[0]
        if isinstance(parts, ast.Tuple | ast.List) and len(parts.elts) == 2:
            first, second = (source.of(e) for e in parts.elts)
            if first != second:
                text = f"({second}, {first})"
                yield source.replace("concatenation", parts, text, codes)
            if first.startswith("-"):
                text = f"({first[1:]}, {second})"
                yield source.replace("concatenation", parts, text, codes)


def dropouts(source: Source) -> Iterator[Edit]:
    """Drop before the softmax, in eval mode, twice, or not at all."""
    for call, name in _calls(source):
        text = source.of(call.func)
        if name == "dropout" and text == "F.dropout":
            bare = f"F.dropout({source.of(call.args[0])}, p=self.dropout)"
            yield source.replace("dropout", call, bare, DROPOUT)
            yield source.replace("dropout", call, source.of(call.args[0]), DROPOUT)
            twice = source.of(call).replace("weights", source.of(call), 1)
            yield source.replace("dropout", call, twice, DROPOUT)
        if text in ("self.attn_dropout", "self.attn_drop", "self.dropout"):
            value = source.of(call.args[0])
            yield source.replace("dropout", call, value, DROPOUT)
            yield source.replace("dropout", call, f"{text}({source.of(call)})", DROPOUT)
        if name == "softmax":
            drop = next(
                (d for d in ("self.attn_dropout", "self.attn_drop", "self.dropout") if f"{d}(" in source.text),
                None,
            )  # fmt: skip
            scores = call.args[0] if call.args else None
            if drop is not None and scores is not None:
                yield source.replace("dropout", scores, f"{drop}({source.of(scores)})", DROPOUT)
            elif drop is not None and isinstance(call.func, ast.Attribute):
                text = f"{drop}({source.of(call.func.value)})"
                yield source.replace("dropout", call.func.value, text, DROPOUT)
