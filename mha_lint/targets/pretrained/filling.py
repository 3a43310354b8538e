"""Give a value to what a config leaves open and its model needs."""

from __future__ import annotations

import copy
import importlib.util
import re
from typing import Any

from mha_lint.targets.pretrained.leaves import leaves, scopes
from mha_lint.targets.pretrained.roles import Role, role_of

_VALUES = {
    Role.VOCABULARY: 96,
    Role.EXPERTS: 8,
    Role.CHOSEN: 2,
    Role.GROUPS: 1,
    Role.CHOSEN_GROUPS: 1,
    Role.LAYERS: 2,
    Role.POSITIONS: 64,
    Role.WINDOW: 4,
    Role.CODEBOOKS: 2,
    Role.TOKEN: 0,
}
_RESNET: dict[str, Any] = {
    "model_type": "resnet",
    "depths": [3, 4, 6, 3],
    "hidden_sizes": [256, 512, 1024, 2048],
    "embedding_size": 64,
}


def open_keys(values: dict[str, Any]) -> frozenset[str]:
    """Return the keys of a config's dict whose value is None and could be a size."""
    found = [
        key
        for _, part in scopes(values)
        for key, value in part.items()
        if value is None and (_value(key, part) is not None)
    ]
    return frozenset(found)


def names_of_keys(config: Any, values: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Return how code may call each key of a config: by itself, and by the names mapped to it."""
    found = {key: {key} for _, part in scopes(values) for key in part}
    waiting = [config]
    while waiting:
        one = waiting.pop()
        for name, key in (getattr(one, "attribute_map", None) or {}).items():
            found.setdefault(key, {key}).add(name)
        waiting += [v for v in vars(one).values() if hasattr(v, "attribute_map")]
    return {key: frozenset(names) for key, names in found.items()}


def filled(values: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Return a copy of a config's dict in which `keys` have a value wherever they had none."""
    if not keys:
        return values
    result = copy.deepcopy(values)
    for _, part in scopes(result):
        for key in sorted(keys & part.keys()):
            if part[key] is None:
                part[key] = _value(key, part)
                if role_of(key, 1024) is Role.TOKEN:
                    part[key] = _free_token(result)
        for key in sorted(keys - part.keys()):
            owner, _, name = key.rpartition(".")
            if owner and owner == _class_of(part) and name not in part:
                part[name] = _free_token(result)
    return result


def missing_keys(error: str) -> frozenset[str]:
    """Return the token that an error misses in a config, as "class.key"."""
    found = re.search(r"'(\w+Config)' object has no attribute '(\w+)'", error)
    if found is None or role_of(found[2], 1024) is not Role.TOKEN:
        return frozenset()
    return frozenset({f"{found[1]}.{found[2]}"})


def has_timm(values: dict[str, Any]) -> bool:
    """Tell whether a part of a config is a backbone of timm."""
    own = values.get("model_type") == "timm_backbone"
    return own or any(has_timm(v) for v in values.values() if isinstance(v, dict))


def _class_of(part: dict[str, Any]) -> str:
    """Return the name of a part's config class."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return str(CONFIG_MAPPING_NAMES.get(part.get("model_type"), ""))


def _free_token(values: dict[str, Any]) -> int:
    """Return a token that no other key names."""
    used = {x.value for x in leaves(values) if x.role is Role.TOKEN}
    return next(n for n in range(4, 1 << 20) if n not in used)


def without_timm(values: dict[str, Any]) -> dict[str, Any]:
    """Return a config's dict with a ResNet for each backbone of timm, where that is missing."""
    if importlib.util.find_spec("timm") is not None:
        return values
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            if value.get("model_type") == "timm_backbone":
                wanted = len(value.get("out_indices") or ()) or 4
                value = _RESNET | {"out_indices": list(range(5 - min(wanted, 4), 5))}
            value = without_timm(value)
        result[key] = value
    return result


def _value(key: str, part: dict[str, Any]) -> Any:
    heads = _first(part, "num_attention_heads", "n_head", "num_heads", "n_heads")
    width = _first(part, "hidden_size", "d_model", "n_embd", "embed_dim")
    layers = _first(part, "num_hidden_layers", "n_layer", "num_layers")
    if key == "layer_types":
        return ["full_attention"] * layers if layers else None
    if key == "prediction_length":
        return 8
    match role_of(key, 1024):
        case Role.HEAD_DIM:
            return width // heads if width and heads else None
        case Role.KV_HEADS | Role.HEADS:
            return heads
        case Role.WIDTH:
            return width
        case Role.KEEP if key.startswith(("num_", "n_")):
            return 1
        case role:
            return _VALUES.get(role)


def _first(part: dict[str, Any], *keys: str) -> int | None:
    return next((part[k] for k in keys if isinstance(part.get(k), int)), None)
