"""Tell from the words of a file, without parsing it, that nothing in it can compute attention.

Every sign that the scan goes by is a call or an operator that has to be written down: a kernel of
attention, a layer of torch.nn, a contraction (``matmul(``, ``@``, ``sum(`` of products). What holds
none of these words outside its strings and comments has no sign of its own. The answer errs on one
side only: "may" for a file in which the scan finds nothing costs some time, "cannot" is certain.
"""

from __future__ import annotations

import io
import re
import tokenize
import unicodedata
from dataclasses import dataclass
from keyword import iskeyword

from mha_lint.targets.code_text import code_of
from mha_lint.targets.signals import CONTRACTIONS, KERNELS, TORCH_LAYERS

_JOIN = r"(?:[ \t\f\n\\)]|#[^\n]*\n)*"
"""What may stand between the name of a function and the bracket of its call."""
_ENDINGS = sorted(
    word for word in CONTRACTIONS if not any(word.endswith(o) for o in CONTRACTIONS - {word})
)
_CONTRACTIONS = tuple(re.compile(rf"{word}\b{_JOIN}\(", re.ASCII) for word in _ENDINGS)
"""One search each: with fixed letters first, a search skips what does not begin with them."""
_HEAD = re.compile(r"\w*\Z", re.ASCII)
_SUMS = re.compile(rf"sum\b{_JOIN}\(", re.ASCII)
_LAYERS = tuple(n for n in TORCH_LAYERS if not any(m in n for m in TORCH_LAYERS - {n}))

_PLAIN = r"[^()\[\]{}@'\"#\\]"
_NESTED = rf"[(\[{{]{_PLAIN}*+[)\]}}]"
for _ in range(4):
    _NESTED = rf"[(\[{{](?:{_PLAIN}++|{_NESTED})*+[)\]}}]"
_DECORATED = re.compile(
    rf"(?:@[\w. \t]+(?:{_NESTED})?[ \t\f]*\n\s*+)+(?:async[ \t]+)?(?:def|class)[ \t\f]"
)
"""Lines of decorators, down to what they decorate."""
_SPACE = " \t\f\n\\"
_STEP = re.compile(r"[()\[\]{},]|\*+|\bfor\b")
_PRODUCT = re.compile(r"(?<!\*)\*(?!\*)")
_WORD_BEFORE = re.compile(r"\w+\Z")

_FROM = re.compile(
    r"from\b((?:[^#\"'()\[\]{},;:=\n\\]|\\\n)*?)\bimport\b[ \t\f\\\n]*"
    r"(\((?:[^)#]|#[^\n]*\n)*+|(?:[^\n;\\]|\\\n)*+)"
)
_NAME = re.compile(r"[^\s,()\\;#]+")
_CLASS = re.compile(r"class[ \t\f\\\n]+([^\s(:\\\[#]+)")


@dataclass(frozen=True, slots=True)
class Imported:
    """One ``from ... import``: where from, and at least the names that it takes."""

    level: int
    module: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Glance:
    """What a file's words tell: whether it ``computes`` what can be attention, and at least its
    classes and the names that it imports.
    """

    computes: bool
    classes: frozenset[str] = frozenset()
    imported: tuple[Imported, ...] = ()


def glance(text: str, *, python: bool = True) -> Glance:
    """Return what the words of `text` tell; ``python``: it is nothing but Python."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    classes = frozenset(_CLASS.findall(plain))
    computes = _may_compute(plain) and (not python or _may_compute_in_code(text))
    return Glance(computes, classes, _imported(plain) if classes and not computes else ())


def decoded(data: bytes) -> str | None:
    """Return the text of a Python file; None if it has none, so that reading it must tell why."""
    if b"\0" in data:
        return None
    try:
        if b"coding" in data and b"coding" in b"".join(data.split(b"\n", 2)[:2]):
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            return data.decode(encoding)
        return data.decode("utf-8-sig")
    except (UnicodeDecodeError, SyntaxError, LookupError):
        return None


def _may_compute(text: str) -> bool:
    """Tell whether a sign can stand in `text`, wherever in it."""
    return (
        _contracts(text)
        or _SUMS.search(text) is not None
        or _names_attention(text)
        or _has_matrix_product(text)
    )


def _may_compute_in_code(text: str) -> bool:
    """Tell whether a sign can stand in the code of `text`, outside strings and comments."""
    code = code_of(text)
    if code is None:
        return True
    if not code.isascii():
        code = unicodedata.normalize("NFKC", code)
    return (
        _contracts(code)
        or _names_attention(code)
        or _has_matrix_product(code)
        or any(_sums_products(code, match) for match in _SUMS.finditer(code))
    )


def _contracts(text: str) -> bool:
    """Tell whether a contraction by its name can be called in `text`."""
    for word, calls in zip(_ENDINGS, _CONTRACTIONS, strict=True):
        for call in calls.finditer(text):
            head = _HEAD.search(text, max(0, call.start() - 20), call.start())
            if head is not None and head[0] + word in CONTRACTIONS:
                return True
    return False


def _names_attention(text: str) -> bool:
    return any(kernel in text for kernel in KERNELS) or (
        "torch" in text and any(layer in text for layer in _LAYERS)
    )


def _has_matrix_product(text: str) -> bool:
    """Tell whether an ``@`` of `text` can be an operator that gives a value.

    At the start of a line it is one only inside brackets or behind a backslash; and where the line
    below begins with ``def``, there are no brackets around it.
    """
    at = text.find("@")
    while at >= 0:
        if text[at + 1 : at + 2] == "=":
            at = text.find("@", at + 1)
            continue
        line = text.rfind("\n", 0, at) + 1
        if text[line:at].strip(" \t\f") or text[max(0, line - 2) : line] == "\\\n":
            return True
        decorated = _DECORATED.match(text, at)
        if decorated is None:
            return True
        at = text.find("@", decorated.end())
    return False


def _sums_products(code: str, call: re.Match[str]) -> bool:
    """Tell whether a call of ``sum`` in `code` can sum products: those it is handed or asked of."""
    before = code[: call.start()].rstrip(_SPACE)
    if before.endswith("."):
        before = before[:-1].rstrip(_SPACE)
        if before.endswith(")") and _closes_on_product(before):
            return True
    depth, product = 0, False
    for step in _STEP.finditer(code, call.end()):
        match step[0]:
            case "(" | "[" | "{":
                depth += 1
            case ")" | "]" | "}" if depth:
                depth -= 1
            case "for" if not depth:
                return False  # a generator is no product
            case ")" | "]" | "}" | "," if not depth:
                return product
            case "*":
                product = True
    return product


def _closes_on_product(text: str) -> bool:
    """Tell whether `text` ends with a product in brackets, not with those of a call."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        if text[index] in ")]}":
            depth += 1
        elif text[index] in "([{":
            depth -= 1
            if not depth:
                word = _WORD_BEFORE.search(text, max(0, index - 20), index)
                called = text[:index].endswith((")", "]", "}")) or (
                    word is not None and not iskeyword(word[0])
                )
                return not called and _PRODUCT.search(text, index) is not None
    return True


def _imported(text: str) -> tuple[Imported, ...]:
    found = []
    for place, names in _FROM.findall(text):
        whole = "".join(place.replace("\\", " ").split())
        module = whole.lstrip(".")
        found.append(Imported(len(whole) - len(module), module, frozenset(_NAME.findall(names))))
    return tuple(found)
