"""Read a config.json into a config object of transformers: no network, no code from elsewhere."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from mha_lint.model.report import NotChecked

INSTALL = "pip install transformers"


def read_config(path: Path | str) -> Any:
    """Return the config that the file at `path` describes, or `NotChecked` with the reason.

    The file's "model_type" must be one that the installed transformers has: code that a config
    names in "auto_map" is not run.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return NotChecked(f"cannot read {path}: {error.strerror}")
    except ValueError as error:
        return NotChecked(f"{path} is not JSON: {error}")
    if not isinstance(values, dict):
        return NotChecked(f"{path} holds no JSON object")
    if importlib.util.find_spec("transformers") is None:
        return NotChecked("a config.json needs transformers, which is not installed", hint=INSTALL)
    kind = values.get("model_type")
    known = _known_types()
    if not isinstance(kind, str) or kind not in known:
        return _unknown(path, kind, values)
    try:
        return known[kind].from_dict(values)
    except Exception as error:  # whatever transformers' own checks raise
        reason = f"transformers does not take {path}: {type(error).__name__}: {error}"
        return NotChecked(reason)


def model_class(config: Any) -> Any:
    """Return the class that `config` names in "architectures", else the one of AutoModel.

    Raises `LookupError` where transformers has neither.
    """
    import transformers

    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, name, None)
        if isinstance(found, type):
            return found
    try:
        found = transformers.MODEL_MAPPING[type(config)]
    except (KeyError, ValueError) as error:
        raise LookupError(f"transformers has no model for {type(config).__name__}") from error
    if isinstance(found, tuple | list):
        return found[0]
    return found


def other_classes(config: Any) -> list[str]:
    """Return the classes that transformers has for this kind of model besides AutoModel's."""
    import transformers
    from transformers.models.auto import modeling_auto

    found: dict[str, None] = {}
    for mapping in vars(modeling_auto):
        if mapping.startswith("MODEL_") and mapping.endswith("MAPPING_NAMES"):
            names = getattr(modeling_auto, mapping).get(config.model_type, ())
            found |= dict.fromkeys((names,) if isinstance(names, str) else names)
    usual = model_name(config)
    return [n for n in found if n != usual and hasattr(transformers, n)]


def model_name(config: Any) -> str:
    """Return the name of the class that is built, empty where there is none."""
    try:
        return str(model_class(config).__name__)
    except LookupError:
        return ""


def _unknown(path: Path, kind: object, values: dict[str, Any]) -> NotChecked:
    if "auto_map" in values:
        reason = f"{path} names a model whose code comes with its weights (auto_map), not run here"
        return NotChecked(reason, hint="pass the model's Python file and class instead")
    if not isinstance(kind, str):
        return NotChecked(f'{path} has no "model_type"')
    import transformers

    reason = f'transformers {transformers.__version__} has no model type "{kind}"'
    return NotChecked(reason, hint="pip install --upgrade transformers")


def _known_types() -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING
