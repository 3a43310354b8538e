"""What a config file says of head sizes: one `Section` for each part that describes attention.

Keys are known by the table of aliases alone, never by the model's name. A key with something in
front (``encoder_attention_heads``, ``swa_head_dim``, ``num_global_key_value_heads``) describes a
variant: the section as it is, but for that key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from mha_lint.dims.data import LARGEST, Equation, Fact, SourceError
from mha_lint.dims.files import read_json

ALIASES: dict[str, tuple[str, ...]] = {
    "h": (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "num_head",
        "nhead", "heads", "num_query_heads", "n_q_heads",
    ),
    "h_kv": (
        "num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv", "kv_n_heads",
        "multi_query_group_num", "num_query_groups", "n_head_groups", "n_query_groups",
        "num_key_value_attention_heads",
    ),
    "d_k": (
        "head_dim", "d_kv", "attention_head_dim", "attention_head_size", "kv_channels", "head_size",
        "dim_head", "d_head", "qk_head_dim",
    ),
    "d_v": ("v_head_dim",),
    "nope": ("qk_nope_head_dim",),
    "rope": ("qk_rope_head_dim",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "d_model": (
        "hidden_size", "d_model", "n_embd", "dim", "embed_dim", "model_dim", "emb_dim", "width",
        "hidden_dim",
    ),
}  # fmt: skip
"""The unknowns and how configs call them; the first key that is there counts."""

LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "depth",
)  # fmt: skip
ROTARY_WIDTH = ("rotary_dim", "rotary_ndims", "rotary_emb_dim")
ROTARY_SHARE = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percent")
ROTARY_SIGNS = ("rope_theta", "rope_parameters", "rope_scaling", "rotary_emb_base", "mrope_section")
ROTARY_PLACES = ("rope_parameters", "rope_scaling")
"""Sections of a config that describe the rotation."""
PARTS = ("attn_config", "attention_config", "attention")
"""Sections that complete the one they stand in (MPT's ``attn_config``)."""
_WIDTH_KEY = re.compile(r"hidden|dim|size|width|channels|embd|d_model|units")
_OTHER_MECHANISM = re.compile(r"index|mamba|linear|ssm|conv")
"""Keys that begin so describe indexers and recurrences beside the attention."""
_NO_MODEL_WIDTH = re.compile(
    r"intermediate|ffn|mlp|expert|pooler|vocab|image|patch|window|head|embed_proj|projection|type_|kernel"
)
_LAYER = re.compile(r"\d{1,9}")
_SINGLE_KV = "multi_query"
_LARGEST = 64_000_000
_VARIANT_KEYS = tuple(
    (alias, name) for name in ("h", "h_kv", "d_k", "d_v") for alias in ALIASES[name] if "_" in alias
)


@dataclass(frozen=True, slots=True)
class Section:
    """What one part of a config says.

    ``name``: "" for the file itself, else "text_config" or "decoder". ``values`` and ``keys``: the
    unknowns stated there and the keys that state them; ``lists``: those stated for each layer.
    ``raw``: the part itself, with what completes it. ``layer``: the one layer that it overrides.
    """

    name: str
    values: dict[str, int]
    keys: dict[str, str]
    lists: dict[str, tuple[int, ...]] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)
    variant: bool = False
    layer: int | None = None

    def key(self, name: str) -> str:
        """Return how sentences call the key of `name`, with the section it stands in."""
        section = "" if self.variant or not self.name else f"{self.name}."
        return f"config {section}{self.keys[name]}"

    def facts(self, latent: bool = False) -> list[Fact]:
        """Return one stated fact for each unknown; `latent`: for attention with low-rank keys."""
        skipped = {"d_k", "h_kv"} if latent else {"nope", "rope", "q_rank", "kv_rank"}
        if self.staged:
            skipped.add("d_model")
        return [
            Fact(
                self.key(name),
                f"{self.key(name)} = {value}",
                Equation(((1, (name,)),), value),
                "stated",
            )
            for name, value in self.values.items()
            if name not in skipped
        ]

    @property
    def staged(self) -> bool:
        """Tell whether heads are stated for each stage of a model whose width grows."""
        return any("head" in str(k) and isinstance(v, list) for k, v in self.raw.items())

    @property
    def widths(self) -> dict[int, str]:
        """Return all whole numbers stated under a key that may mean a width."""
        return {
            v: str(k)
            for k, v in self.raw.items()
            if is_size(v) and _WIDTH_KEY.search(str(k)) and not _NO_MODEL_WIDTH.search(str(k))
        }

    @property
    def latent(self) -> bool:
        """Tell whether keys and values are made from a low-rank latent (MLA)."""
        return "rope" in self.values and "kv_rank" in self.values


def read_config(path: Path) -> dict[str, Any]:
    """Return the JSON object of a config file.

    Raises:
        SourceError: no JSON object, or unreasonably large.
    """
    loaded = read_json(path, _LARGEST)
    if not isinstance(loaded, dict):
        raise SourceError(f"{path}: no JSON object")
    return loaded


def is_size(value: object) -> TypeGuard[int]:
    """Tell whether `value` is a whole number that may be meant as a size, if perhaps a wrong one."""
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def sections(config: Mapping[str, Any]) -> list[Section]:
    """Return the parts of `config` that say something of heads, the outermost first."""
    return list(_sections("", config, 0))


def _sections(name: str, raw: Mapping[str, Any], depth: int) -> Iterator[Section]:
    full = dict(raw)
    for part in PARTS:
        if isinstance(raw.get(part), Mapping):
            full = {**raw[part], **full}
    own = _section(name, full)
    if "h" in own.values or "h" in own.lists:
        yield own
    yield from _variants(name, full, own)
    if depth > 4:
        return
    for key, value in raw.items():
        if isinstance(value, Mapping) and value and all(_LAYER.fullmatch(str(k)) for k in value):
            yield from _overrides(name, full, str(key), value)
        elif isinstance(value, Mapping) and key not in (*PARTS, *ROTARY_PLACES):
            yield from _sections(f"{name}.{key}" if name else str(key), value, depth + 1)


def _overrides(
    name: str, full: Mapping[str, Any], key: str, layers: Mapping[Any, Any]
) -> Iterator[Section]:
    """Yield a section for each layer whose sizes a config states apart (``per_layer_config``)."""
    for number, changed in layers.items():
        if not isinstance(changed, Mapping):
            continue
        own = _section(f"{name}.{key}.{number}".strip("."), {**full, **changed})
        keys = {n: f"{key}.{number}.{k}" if k in changed else k for n, k in own.keys.items()}
        yield Section(
            own.name, own.values, keys, own.lists, own.raw, variant=True, layer=int(number)
        )


def _section(name: str, raw: Mapping[str, Any]) -> Section:
    values: dict[str, int] = {}
    keys: dict[str, str] = {}
    lists: dict[str, tuple[int, ...]] = {}
    for unknown, aliases in ALIASES.items():
        for alias in aliases:
            value = raw.get(alias)
            if is_size(value):
                values[unknown], keys[unknown] = value, alias
                break
            if isinstance(value, list) and value and all(is_size(n) for n in value):
                lists[unknown], keys[unknown] = tuple(value), alias
                break
    if values.get("rope") == 0:  # a way to say that nothing is rotated
        for unknown in ("rope", "d_k"):
            if values.get(unknown) == 0:
                del values[unknown]
    if values.get("q_rank") == 0:
        del values["q_rank"]
    if raw.get(_SINGLE_KV) is True and not raw.get("new_decoder_architecture"):
        values["h_kv"], keys["h_kv"] = 1, "multi_query = true, key/value heads"
    elif raw.get(_SINGLE_KV) is False and not raw.get("new_decoder_architecture") and "h" in values:
        values["h_kv"], keys["h_kv"] = values["h"], "multi_query = false, key/value heads"
    if raw.get("multi_query_attention") is False or raw.get("attn_type") == "multihead_attention":
        values.pop("h_kv", None)
    if raw.get("attn_type") == "multiquery_attention":
        values["h_kv"], keys["h_kv"] = 1, "attn_type = multiquery_attention, key/value heads"
    return Section(name, values, keys, lists, raw)


def _variants(name: str, raw: Mapping[str, Any], own: Section) -> Iterator[Section]:
    """Yield a section for each prefix that keys of known meaning carry."""
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for key, value in raw.items():
        if not is_size(value):
            continue
        prefix, unknown = _prefixed(str(key))
        if unknown:
            found.setdefault(prefix, {})[unknown] = (value, str(key))
    for prefix, given in found.items():
        if _OTHER_MECHANISM.match(prefix):
            continue
        for width in ("d_model", "hidden_size", "hidden_dim", "embed_dim", "dim"):
            key = f"{prefix}_{width}"
            if is_size(raw.get(key)) and "cross" not in prefix:
                given.setdefault("d_model", (raw[key], key))
        values = {**own.values, **{n: v for n, (v, _) in given.items()}}
        keys = {**own.keys, **{n: k for n, (_, k) in given.items()}}
        if "h" not in values:
            continue
        if "h_kv" not in given and "h" in given:
            values.pop("h_kv", None)
        label = f"{name}.{prefix}" if name else prefix
        yield Section(label, values, keys, own.lists, raw, variant=True)


def _prefixed(key: str) -> tuple[str, str | None]:
    """Return prefix and unknown of a key like ``decoder_attention_heads``."""
    if any(key in aliases for aliases in ALIASES.values()):
        return "", None
    infix = re.fullmatch(r"num_(\w+?)_(attention_heads|key_value_heads|heads)", key)
    if infix:
        return infix[1], "h_kv" if infix[2] == "key_value_heads" else "h"
    best = max(
        ((alias, name) for alias, name in _VARIANT_KEYS if key.endswith(f"_{alias}")),
        key=lambda pair: len(pair[0]),
        default=None,
    )
    if best is None:
        return "", None
    return key[: -len(best[0]) - 1], best[1]
