"""Models of the transformers package, from a config file alone: read, shrink, build, call.

transformers is imported inside the functions that need it, and no weights are ever read.
"""

from __future__ import annotations

from mha_lint.targets.pretrained.building import build, parameter_count
from mha_lint.targets.pretrained.calling import NoInputsError, inputs_of
from mha_lint.targets.pretrained.reading import model_class, read_config
from mha_lint.targets.pretrained.shrinking import CannotShrinkError, ShrunkConfig, shrunk

__all__ = [
    "CannotShrinkError",
    "NoInputsError",
    "ShrunkConfig",
    "build",
    "inputs_of",
    "model_class",
    "parameter_count",
    "read_config",
    "shrunk",
]
