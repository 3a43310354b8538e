"""What the code is meant to be: stated by the user, else inferred from flags, names and docstrings.

An inferred entry is only as strong as a name is. ``Decoder`` alone says nothing: those of DETR, of
autoencoders and U-Nets, and cross-only ones, see all positions.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from mha_lint.facts.classes import class_sources, function_source, tree_of
from mha_lint.model.contract import Contract, ContractEntry
from mha_lint.targets.infer.input_names import CACHE, CROSS, MASK
from mha_lint.targets.subject import Subject

CAUSAL_FLAGS = frozenset(
    {"causal", "is_causal", "use_causal", "causal_mask", "use_causal_mask", "causal_attention"}
    | {"autoregressive", "auto_regressive", "is_autoregressive", "unidirectional", "mask_future"}
    | {"decoder_only"}
)
BIDIRECTIONAL_FLAGS = frozenset(["bidirectional", "is_bidirectional", "noncausal", "non_causal"])
_CAUSAL_NAMES = (
    ("causal",),
    ("autoregressive",),
    ("auto", "regressive"),
    ("gpt",),
    ("decoder", "only"),
)
_BIDIRECTIONAL_NAMES = (
    ("encoder",),
    ("bert",),
    ("roberta",),
    ("vit",),
    ("vi", "t"),
    ("dei", "t"),
    ("swin",),
    ("bidirectional",),
    ("noncausal",),
    ("non", "causal"),
    ("vision", "transformer"),
)
_CROSS_NAMES = (("cross", "attention"), ("cross", "attn"), ("cross", "att"), ("crossattention",))
_DENYING = frozenset(["non", "not", "no", "semi", "un"])
_CAUSAL_TEXT = re.compile(
    r"decoder[- ]only|(?<![\w-])auto-?regressive|(?<![\w-])causal(ly)?[- ](self[- ]|multi-?head )?"
    r"(attention|attend|masked|masking|mask\b|transformer|language|decoder|lm\b|model|block)"
    r"|next[- ]token prediction|predicts? the next token|left[- ]to[- ]right",
    re.IGNORECASE,
)
_NOT_CAUSAL_TEXT = re.compile(
    r"non-?causal|non-?auto-?regressive|not causal|bi-?directional|masked language|\bMLM\b|\bBERT\b"
    r"|(no|without( a| any)?|instead of( a)?|optional(ly)?( a)?) (causal|auto)|prefix|look-?ahead"
    r"|causal(ity)? (is|comes|must|should|mask)[^.]{0,40}(caller|outside|given|passed|argument)"
    r"|causal if|if causal|causal or|denois",
    re.IGNORECASE,
)
_CAUSES_TEXT = re.compile(
    r"confound|interven|counterfactual|front-?door|back-?door|causal (inference|graph|effect|discovery)",
    re.IGNORECASE,
)
"""Words of code in which causal is said of causes, not of positions."""
_HIDDEN_WORD_TEXT = re.compile(
    r"mask[_ ]token|masked[_ ]lm|masked language|\bMLM\b|bert|bidirectional|cloze|denois|diffusion",
    re.IGNORECASE,
)


_TILED_TEXT = re.compile(
    r"head\w* [^.]{0,60}?(%|\bmod(ulo)?\b) *\w*|round[- ]robin|(keys|values|heads|\bK\b|\bV\b)[^.]{0,30}"
    r"(are|is|get) tiled",
    re.IGNORECASE,
)
"""Words of a docstring that gives each key/value head to every n-th query head."""


def contract_of(subject: Subject) -> Contract:
    """Return the contract: what was stated, then flags, then what names and docstrings say."""
    found: list[ContractEntry] = []
    for entry in subject.spec.expect:
        key, _, value = entry.partition("=")
        found.append(ContractEntry(key, value or True, "stated"))
    stated = {e.key for e in found}
    inferred = [*_flags(subject), *said_by_name(subject.name), *_said_by_text(subject)]
    if _CAUSES_TEXT.search(subject.name + docstring_of(subject.module)):
        inferred = [e for e in inferred if e.key != "causal"]
    seen = set(stated)
    if "causal" in stated or "bidirectional" in stated:
        seen |= {"causal", "bidirectional"}  # the one is the other's opposite
    for one in inferred:
        opposite = {"causal": "bidirectional", "bidirectional": "causal"}.get(one.key)
        if one.key not in seen and opposite not in {e.key for e in found}:
            found.append(one)
            seen.add(one.key)
    return Contract(tuple(found))


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of an identifier, in lower case: ("mini", "gpt") of MiniGPT2."""
    last = name.rpartition(".")[2]
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", last)
    return tuple(p.lower() for p in parts)


def said_by_name(name: str, kind: str = "class name") -> list[ContractEntry]:
    """Return what the name of a class or function says of it."""
    words = words_of(name)
    found: list[ContractEntry] = []
    source = f"{kind} {name.rpartition('.')[2]}"
    if _has(words, _CAUSAL_NAMES) and "causality" not in words:
        found.append(ContractEntry("causal", True, source))
    elif _has(words, _BIDIRECTIONAL_NAMES) and not set(words) & {"decoder", "lm", "unidirectional"}:
        found.append(ContractEntry("bidirectional", True, source))
    if _has(words, _CROSS_NAMES):
        found.append(ContractEntry("cross", True, source))
    return found


def _has(words: Sequence[str], phrases: Sequence[tuple[str, ...]]) -> bool:
    """Return whether one of `phrases` stands in `words`, and no word before it takes it back."""
    for phrase in phrases:
        for at in range(len(words) - len(phrase) + 1):
            if tuple(words[at : at + len(phrase)]) == phrase and (
                at == 0 or words[at - 1] not in _DENYING
            ):
                return True
    return False


def _flags(subject: Subject) -> Iterator[ContractEntry]:
    """Yield what boolean arguments of the constructor, of the call, and attributes say."""
    called = dict(_call_flags(subject))
    for where, values in (
        ("argument", called),
        ("argument", subject.stated),
        ("attribute", _attributes(subject.module)),
    ):
        for name, value in values.items():
            low = name.rpartition(".")[2].lower()
            if not isinstance(value, bool):
                continue
            if value and where == "attribute" and is_for_every_use(subject.module, name):
                continue
            if low in CAUSAL_FLAGS:
                yield ContractEntry("causal", value, f"{where} {name}={value}")
            elif low in BIDIRECTIONAL_FLAGS and value:
                yield ContractEntry("bidirectional", True, f"{where} {name}={value}")


def is_for_every_use(module: Any, flag: str) -> bool:
    """Return whether a class sets a flag on all of its modules, and some may read another source.

    A copied ``self.is_causal = True`` tells nothing of one of them: cross-attention has it as well.
    """
    if not isinstance(module, nn.Module):
        return False
    try:
        made = inspect.signature(type(module)).parameters
        called = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return False
    takes_it = any(n == flag or p.kind is p.VAR_KEYWORD for n, p in made.items())
    return not takes_it and any(
        one.default is None
        and CROSS.search(one.name)
        and not (CACHE.search(one.name) or MASK.search(one.name))
        for one in called
    )


def _call_flags(subject: Subject) -> Iterator[tuple[str, bool]]:
    """Yield the booleans that the call passes, and the defaults that it leaves."""
    target = subject.module.forward if isinstance(subject.module, nn.Module) else subject.module
    given = dict(
        zip(subject.argument_names, [*subject.args, *subject.kwargs.values()], strict=False)
    )
    yield from ((n, v) for n, v in given.items() if isinstance(v, bool))
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return
    for one in parameters:
        if one.name not in given and isinstance(one.default, bool):
            yield one.name, one.default


def _attributes(module: Any) -> dict[str, Any]:
    return dict(vars(module)) if isinstance(module, nn.Module) else {}


def _said_by_text(subject: Subject) -> list[ContractEntry]:
    """Return what the docstring says, and a language model's name together with its head."""
    text = docstring_of(subject.module)
    found: list[ContractEntry] = []
    match = _CAUSAL_TEXT.search(text)
    if match is not None and not _NOT_CAUSAL_TEXT.search(text):
        found.append(ContractEntry("causal", True, f'docstring: "{match.group()}"'))
    elif re.search(r"bi-?directional", text, re.IGNORECASE) and match is None:
        found.append(ContractEntry("bidirectional", True, "docstring: bidirectional"))
    tiled = _TILED_TEXT.search(text)
    if tiled is not None:
        found.append(ContractEntry("gqa", "tiled", f'docstring: "{tiled.group()}"'))
    words = words_of(subject.name)
    named = _has(words, (("language", "model"), ("lm",)))
    if named and _predicts_its_own_tokens(subject.module):
        source = "\n".join(s.text for s in class_sources(type(subject.module)))
        other = {"masked", "bert", "encoder", "seq", "translation", "prefix", "mlm"} & set(words)
        if not other and not _HIDDEN_WORD_TEXT.search(source):
            said = f"class name {subject.name}, with a head over the tokens that it reads"
            found.append(ContractEntry("causal", True, said))
    return found


def docstring_of(made: Any) -> str:
    """Return the docstrings of a module's class and of its forward, or that of a function."""
    if not isinstance(made, nn.Module):
        source = function_source(made)
        return (ast.get_docstring(source.node) or "") if source is not None else ""
    texts = []
    for source in class_sources(type(made))[:1]:
        texts.append(ast.get_docstring(source.node) or "")
        for part in source.node.body:
            if isinstance(part, ast.FunctionDef) and part.name == "forward":
                texts.append(ast.get_docstring(part) or "")
        if len(_classes_in(source.path)) == 1:
            texts.append(ast.get_docstring(tree_of(source.path)) or "")
    return "\n".join(t for t in texts if t)


def _classes_in(path: str) -> list[ast.ClassDef]:
    return [n for n in tree_of(path).body if isinstance(n, ast.ClassDef)]


def _predicts_its_own_tokens(module: Any) -> bool:
    """Return whether a linear map ends in as many channels as an embedding has entries."""
    if not isinstance(module, nn.Module):
        return False
    tables = {m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)}
    return any(isinstance(m, nn.Linear) and m.out_features in tables for m in module.modules())
