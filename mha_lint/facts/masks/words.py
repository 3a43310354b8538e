"""What names, comments and docstrings say about masks and about the direction of attention."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import ClassSource, class_sources, function_source
from mha_lint.targets.subject import Subject

_KEEP_NAME = re.compile(
    r"(^|_)(valid|keep|kept|visible|allow|allowed|attend|attendable|real|observed|alive|"
    r"nonpad|unpadded|notpad|seen|exists|is_token|is_real)(_|$)|(^|_)(not|non)_pad"
)
_HIDE_NAME = re.compile(
    r"(^|_)(blocked|hide|masked_out|forbid|forbidden|ignore|ignored|"
    r"is_pad|pads|is_padding|padded|missing|exclude|excluded|invisible|invalid|absent)(_|$)"
)
_KEPT = (
    r"valid|keeps?|kept|real|attend\w*|allow\w*|visible|see\w*|look\w*|holds?|contains?|has|have|tokens?|"
    r"un-?padded|present|observed|usable|alive|include\w*|part of"
)
_HIDDEN = (
    r"\b(?:pads?\b|padd\w+|mask(?:ed)? out|block\w*|hid\w+|ignor\w+|forbid\w*|exclud\w+|invalid|"
    r"missing|drop\w*|absent|skip\w*|disallow\w*|masked)"
)
_LINK = (
    r"(?=[\s\"'`)*]*(?:(?:entries|positions|values|elements|ones)\s+)?"
    r"(?:=|-|:|→|means|marks|is\b|are\b|for|where|at\b|on\b|in\b|if|when|wherever))"
)
_YES = r"(?:\btrue\b|\b1(?:\.0)?s?\b|\bones\b|\bnon-?zero\b)" + _LINK
_NO = r"(?:\bfalse\b|\b0(?:\.0)?s?\b|\bzeros?\b)" + _LINK
_BACKWARD = re.compile(
    r"backward|revers|right[-_ ]?to[-_ ]?left|\br2l\b|\brtl\b|anti[-_ ]?causal|\bbwd?\b|"
    r"look[-_ ]?ahead only|later positions only|only (?:the )?(?:later|future)|permutation|perm_mask",
    re.IGNORECASE,
)
_CAUSAL = re.compile(
    r"causal(?!\w*\s*=\s*(?:False|True))|autoregress|auto-regress|left[-_ ]to[-_ ]right|"
    r"unidirection|streaming|online|next[-_ ]\w+|recommend|predict|generat|language model|decoder|\bgpt\b|\blm\b|"
    r"subsequent|future|look[-_ ]?ahead|no[-_ ]?peek|\bpast\b|earlier|previous|history|forecast|"
    r"\bar\b|triang",
    re.IGNORECASE,
)
_MASKED_LM = re.compile(r"masked[-_ ]language[-_ ]model", re.IGNORECASE)
_BIDIRECTIONAL = re.compile(
    r"bi-?directional|both (?:directions|sides)|left and right context|whole sequence|full sequence|"
    r"every (?:other )?(?:token|position|patch|word)|all (?:tokens|positions|patches|words)|"
    r"each (?:token|position|patch|word) (?:sees|attends to) (?:all|every)",
    re.IGNORECASE,
)
_ENCODER = re.compile(r"[Ee]ncoder|B[Ee][Rr][Tt]|Vi[Tt]|ViT|Bidirectional|Patch|Vision|Swin|DeiT")
_IN_TIME = re.compile(
    r"decoder|text|temporal|time|history|session|event|trajectory|stream|online|state|action|sequential|"
    r"behavio|speech|audio|music|prompt|generat",
    re.IGNORECASE,
)
"""Encoders of these may well be causal: CLIP's of texts, those of events as they come."""
_COMPLEMENT = re.compile(
    r"background|foreground|complement|opposite|negative|outside|inverse|contrast|unmasked",
    re.IGNORECASE,
)
_PADDING = re.compile(r"pad|len(?:gth)?s?\b|_len|valid|keep|real|nonpad|\bkpm\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """What the source says of a mask: "keep" or "hide" for yes, and the words that say so."""

    meaning: str
    words: str


def name_says(name: str) -> str:
    """Return "keep" or "hide" where a name tells what yes means, else ""."""
    lower = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.split(".")[-1]).lower()
    hides, keeps = bool(_HIDE_NAME.search(lower)), bool(_KEEP_NAME.search(lower))
    if keeps == hides:
        return ""
    return "keep" if keeps else "hide"


def is_about_padding(text: str) -> bool:
    """Return whether a name or line speaks of padding or lengths."""
    return bool(_PADDING.search(text))


def comments_say(text: str, name: str, *, only: bool) -> Said | None:
    """Return what the comments and docstrings of `text` say that yes means in the mask `name`.

    ``only``: there is no other mask that they could speak of.
    """
    found: dict[str, str] = {}
    word = re.compile(rf"\b{re.escape(name)}\b") if name.isidentifier() else None
    for line in remarks(text):
        named = word is not None and word.search(line)
        if not named and not (only and re.search(r"mask|pad", line.lower())):
            continue
        meaning = _meaning(line)
        if meaning:
            found.setdefault(meaning, line.strip())
    if len(found) != 1:
        return None
    ((meaning, words),) = found.items()
    return Said(meaning, words)


def _meaning(line: str) -> str:
    """Return what yes means according to one line, "" where it says nothing or both."""
    lower = re.sub(r"(?:!=|<>|≠|\bnot\b|>)\s*0\b", " true ", line.lower())
    lower = re.sub(r"(?:!=|<>|≠|\bnot\b|<)\s*1\b", " false ", lower)
    votes = set()
    for word, yes in ((_YES, True), (_NO, False)):
        for found in re.finditer(word, lower):
            rest = re.split(
                r"[,;.()]|\band\b|\bbut\b|" + (_NO if yes else _YES), lower[found.end() :]
            )[0]
            kept = _kept(rest)
            if kept is not None:
                votes.add("keep" if kept == yes else "hide")
    return votes.pop() if len(votes) == 1 else ""


def _kept(words: str) -> bool | None:
    """Return whether `words` speak of what is kept, None where they speak of neither."""
    hidden = re.search(_HIDDEN, words)
    kept = re.search(rf"\b(?:{_KEPT})\b", words)
    first = hidden or kept
    if first is None:
        return None
    denied = re.search(
        r"\b(?:not|never|cannot|no|without)\b|n't\b|\bnon-?$", words[: first.start()]
    )
    return (first is kept) != (denied is not None)


@functools.lru_cache(maxsize=256)
def remarks(text: str) -> tuple[str, ...]:
    """Return the lines of comments and docstrings in `text`."""
    lines: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                lines.append(_with_subject(token.line, token.string))
            elif token.type == tokenize.STRING and token.string.lstrip("rRbBuU").startswith(
                ('"""', "'''")
            ):
                lines += token.string.splitlines()
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return tuple(lines)


def _with_subject(line: str, comment: str) -> str:
    """Return a comment with the name that it is written beside: what is assigned, or a parameter."""
    code = line.strip().removesuffix(comment).strip()
    found = re.match(r"([\w.]+)\s*(?::[^=]*)?(?:=(?!=)|,|$)", code)
    return f"{found.group(1).split('.')[-1]}: {comment}" if found else comment


def sources_of(subject: Subject, nodes: list[Node]) -> list[ClassSource]:
    """Return the sources of the subject and of the classes whose methods made `nodes`."""
    module: Any = subject.module
    found = class_sources(type(module)) or _function(module)
    modules = dict(module.named_modules()) if hasattr(module, "named_modules") else {}
    for node in nodes:
        owner = modules.get(str(node.meta.get("module", "")))
        while owner is not None and type(owner).__module__.startswith("torch."):
            owner = None
        if owner is not None and owner is not module:
            found += class_sources(type(owner))
    unique: dict[str, ClassSource] = {s.text: s for s in found}
    return list(unique.values())


def _function(module: Any) -> list[ClassSource]:
    source = function_source(module)
    return [source] if source is not None else []


def parameters_of(node: ast.AST, function: str) -> list[str]:
    """Return the names of the parameters of a method."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef) and one.name == function:
            given = one.args
            return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return []


def says_backward(texts: list[str]) -> bool:
    """Return whether the source speaks of the other direction."""
    return any(_BACKWARD.search(t) for t in texts)


def is_in_time(name: str) -> bool:
    """Return whether an encoder of this name may well be causal."""
    return bool(_IN_TIME.search(name))


def says_complement(texts: list[str]) -> bool:
    """Return whether the source attends to a region and to its complement."""
    return any(_COMPLEMENT.search(t) for t in texts)


def says_causal(texts: list[str]) -> bool:
    """Return whether the source speaks of causality, ``is_causal=`` left aside."""
    plain = [_MASKED_LM.sub("", re.sub(r"is_causal", "", t)) for t in texts]
    return any(_CAUSAL.search(t) for t in plain)


def says_bidirectional(names: list[str], texts: list[str]) -> str:
    """Return the words by which a class is an encoder or sees in both directions, "" if none."""
    for text in texts:
        for line in remarks(text):
            found = _BIDIRECTIONAL.search(line)
            if found:
                return f"its text says “{found.group(0)}”"
    for name in names:
        found = _ENCODER.search(name)
        if found and not is_in_time(name):
            return f"it is called {name}"
    return ""


def owner_classes(bench: Bench, node: Node) -> list[str]:
    """Return the class names of the modules around `node`, the innermost first."""
    module: Any = bench.recording.module
    path = str(node.meta.get("module", ""))
    modules = bench.recording.modules
    names = []
    while path:
        if path in modules and not type(modules[path]).__module__.startswith("torch."):
            names.append(type(modules[path]).__name__)
        path = path.rpartition(".")[0]
    if module is not None:
        names.append(type(module).__name__)
    return names
